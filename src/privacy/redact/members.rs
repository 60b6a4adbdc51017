//! Values of members whose own names say nothing, because another member says that they are secret.

use super::pattern::Pattern;
use super::random::is_random;

/// Returns the patterns of these values.
pub(super) fn patterns() -> [Pattern; 9] {
    [
        // The file of credentials of OpenCode, whose members have no names of secrets.
        Pattern::matches(
            &["\"api\"", "\"api\\"],
            r#""type\\*"\s*:\s*\\*"api\\*"\s*,\s*\\*"key\\*"\s*:\s*\\*"([^"\s\\]{12,})"#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["\"oauth\"", "\"oauth\\"],
            r#""type\\*"\s*:\s*\\*"oauth\\*"[^{}]*?"refresh\\*"\s*:\s*\\*"([^"\s\\]{20,})"#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["\"oauth\"", "\"oauth\\"],
            r#""type\\*"\s*:\s*\\*"oauth\\*"[^{}]*?"access\\*"\s*:\s*\\*"([^"\s\\]{20,})"#,
            is_random,
        )
        .on_two_lines(),
        // The file of credentials of Kaggle, and passwords that Terraform has drawn.
        Pattern::matches(
            &["\"username\"", "\"username\\"],
            r#""username\\*"\s*:\s*\\*"[^"\s]*"\s*,\s*\\*"key\\*"\s*:\s*\\*"([0-9a-f]{32})\\*""#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["\"random_password"],
            r#""random_password\\*"[^}]*?(?:\}[^}]*?)?"result\\*"\s*:\s*\\*"([^"\s\\]{8,})"#,
            is_random,
        )
        .on_two_lines(),
        // A secret that the program of Azure shows.
        Pattern::matches(
            &[".vault.azure.net/secrets/"],
            r#"\.vault\.azure\.net/secrets/[^"\s{}]*"[^{}]*?(?:\{[^{}]*\}[^{}]*?)?"value\\*"\s*:\s*\\*"([^"\s\\]{8,})"#,
            is_random,
        )
        .on_two_lines(),
        // Outputs of Terraform, parameters of CloudFormation, and the key of tokens in the settings of .NET, which say in another
        // member that they are secret.
        Pattern::matches(
            &["sensitive\""],
            r#""sensitive"\s*:\s*true\s*,\s*"type"\s*:\s*"string"\s*,\s*"value"\s*:\s*"([^"\s\\]{8,})"#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["noecho"],
            r#"(?i)noecho"?\s*:\s*"?true"?,?\s+"?default"?\s*:\s*["']?([^\s"'\\]{8,})"#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["\"jwt"],
            r#"(?i)"jwt[a-z]*"\s*:\s*\{[^{}]*?"key"\s*:\s*"([^"\s\\]{12,})"#,
            is_random,
        )
        .on_two_lines(),
    ]
}
