use super::*;

#[test]
fn cookies_of_browsers_and_clients_are_replaced() {
    let (redactor, secret) = (secrets(), random(20));
    for text in [
        "{\"name\": \"sid\", \"value\": \"…\",\n \"domain\": \"localhost\"}",
        "{\"domain\": \"x.io\", \"httpOnly\": true, \"name\": \"sid\", \"path\": \"/\", \"value\": \"…\"}",
        "{\n  'domain': 'x.io',\n  'httpOnly': True,\n  'name': 'sid',\n  'sameSite': 'Lax',\n  'value': '…'\n}",
        "[{\"name\":\"sid\",\"value\":\"…\",\"path\":\"/\",\"expires\":-1,\"httpOnly\":true,\"domain\":\"x.io\"}]",
        "#HttpOnly_localhost\tFALSE\t/\tTRUE\t1799999999\tsid\t…\n",
        "cookie:\nsid=…; a=b",
        "curl https://x.io/a -b sessionid=…",
        "curl --cookie session=… -o a.txt https://x.io",
        "SESSION_COOKIE=…",
        "const sessionCookie = \"…\";",
        "{\"auth_cookie\": \"…\"}",
        "COOKIES=sessionid=…; csrftoken=abc",
        "cookies = \"sessionid=…; csrftoken=abc\"",
        "set_cookie 'sid=…'",
        "<RequestsCookieJar[<Cookie sessionid=… for .x.io/>]>",
        "sid=…; Path=/; Secure; HttpOnly; SameSite=Lax",
        "  [PHPSESSID] => …",
        "https://x.io/a;jsessionid=…",
    ] {
        assert_replaced(&redactor, &text.replace('…', &secret), &secret);
    }
}

#[test]
fn cookies_in_the_objects_lists_and_calls_of_a_program_are_replaced() {
    let (redactor, [first, second]) = (secrets(), [20, 32].map(random));
    for text in [
        "requests.get(u, cookies={'lang': 'en', 'sid': '1'})",
        "cookies = {\n    'csrftoken': '1',\n    'sessionid': '2',\n}\n",
        "cookies={'_ga': 'GA1.2.1234567890.1700000000', 'sid': '1', 'other': '2'}",
        "{\n  \"cookies\": {\n    \"sid\": \"1\",\n    \"csrf\": \"2\"\n  }\n}",
        "{\"code\": \"cookies = {\\n    'sid': '1',\\n    'csrf': '2'\\n}\"}",
        "+cookies = {\n+    'sid': '1',\n+    'csrf': '2',\n+}\n",
        "cookies=dict(sessionid='1', csrf='2')",
        "cookies={'_app_session': 'dGhlIHNlc3Npb24=--1', 'sid': '2'}",
        "cookies: dict[str, str] = {'sid': '1'}",
        "s.cookies.set('sid', '1', domain='x.io'); s.cookies.update({\"csrf\": \"2\"})",
        "s.cookies['sid'] = '1'\ns.cookies[\"csrf\"]=\"2\"\n",
        "driver.add_cookie({\"name\": \"sid\", \"value\": \"1\"})",
        "(await cookies()).set({ name: 'sid', value: '1' }); Cookie::new(\"sid\", \"1\")",
        "await context.addCookies([{ name: 'sid', value: '1', url: 'http://localhost' }, { name: 'b', value: '2' }]);",
        "page.setCookie({name: 'sid', value: '1', url})",
        "res.cookie('sid', '1', { httpOnly: true }); cookies().set('sid', `2`)",
        "&http.Cookie{Name: \"sid\", Value: \"1\"}",
        "'cookies' => ['sid' => '1', 'csrf' => '2'], CookieJar::fromArray(['sid' => '1'], 'x.io')",
        "jar.setCookieSync('sid=1; path=/', url)",
        "new Cookie(\"sid\", \"1\"); setcookie('sid', '2', time() + 3600);",
    ] {
        let text = text.replace("'1'", &format!("'{first}'")).replace("\"1\"", &format!("\"{first}\""));
        let text = text.replace("'2'", &format!("'{second}'")).replace("\"2\"", &format!("\"{second}\""));
        let text = text.replace("`2`", &format!("`{second}`")).replace("sid=1", &format!("sid={first}"));
        let text = text.replace("=--1", &format!("=--{first}"));
        assert_replaced(&redactor, &text, &first);
        assert!(!redacted(&redactor, &text).contains(&second), "{text}");
    }
}

#[test]
fn packages_and_code_that_are_named_after_cookies_stay() {
    let redactor = secrets();
    let digest = drawn(LETTERS_AND_DIGITS, 86, 1);
    let commit = drawn("0123456789abcdef", 40, 1);
    for text in [
        format!(
            "\"node_modules/tough-cookie\": {{\n \"version\": \"4.1.4\",\n \"integrity\": \"sha512-{digest}==\"\n}}"
        ),
        format!("\"cookie\": [\"cookie@0.6.0\", \"\", {{}}, \"sha512-{digest}==\"],"),
        format!("\"cookies\": {{\"hashes\": [\"sha256:{commit}{commit}\"], \"rev\": \"{commit}\"}}"),
        "const cookie = parse(request.headers['x-forwarded-for-2']); cookies.get('name-of-the-cookie-2')"
            .to_owned(),
        "cookies: {\n  theme: 'dark-mode-of-2024',\n}".to_owned(),
        format!(
            "\"cookie\": {{:hex, :cookie, \"0.1.7\", \"{commit}{}\", [:mix], [], \"hexpm\"}},",
            &commit[..24]
        ),
        "{\"cookie\":{\"originalMaxAge\":864,\"expires\":\"2024-05-01T12:00:00.000Z\",\"httpOnly\":true}}".to_owned(),
        "res.cookie('theme', 'dark', { expires: new Date('2024-05-01T12:00:00Z') })".to_owned(),
        "db.cookies.insertOne({ _id: ObjectId(\"65f1c2b7ad0e84c35b6f2a19\"), updatedAt: '2024-05-01T12:00:00Z' })".to_owned(),
        format!("SPEC CHECKSUMS:\n  react-native-cookies: {commit}\ncookies:\n  id: {commit}\n"),
        format!("cookies()\nlet commit = '{commit}';"),
    ] {
        assert_eq!(redacted(&redactor, &text), text);
        assert_eq!(stored(&redactor, &text), text);
    }
}
