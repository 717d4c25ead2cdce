//! Splits a command line of a shell into its commands, pipes and redirections.

/// Commands that a pipe connects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pipeline {
    /// Words of each command, in their order. Redirections are left out.
    pub(super) stages: Vec<Vec<String>>,
    /// Target of the output: `rules.txt`. `None` if the terminal shows the output.
    pub(super) output_file: Option<String>,
}

/// Words of shells around the commands of a loop or a condition.
const KEYWORDS: [&str; 10] = [
    "do", "then", "else", "elif", "if", "while", "until", "{", "(", "!",
];

/// Words of shells that end a loop, a condition or a group.
const ENDS: [&str; 5] = ["done", "fi", "esac", "}", ")"];

/// Splits a command line into its pipelines. Returns `None` if a quote is open.
pub(super) fn parse(line: &str) -> Option<Vec<Pipeline>> {
    let mut lexer = Lexer::default();
    let mut chars = line.chars().peekable();
    while let Some(letter) = chars.next() {
        if !lexer.read_quoted(letter, &mut chars) {
            lexer.read_operator(letter, &mut chars);
        }
    }
    if lexer.quote.is_some() {
        return None;
    }
    lexer.end_pipeline();
    Some(lexer.pipelines)
}

/// Returns whether a command line repeats its commands.
pub(super) fn is_loop(line: &str) -> bool {
    let first = line.split_ascii_whitespace().next().unwrap_or_default();
    matches!(first, "for" | "while" | "until")
}

type Chars<'l> = std::iter::Peekable<std::str::Chars<'l>>;

/// Kind of the next word.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Target {
    #[default]
    Word,
    /// File to which the output is written.
    Output,
    /// File that the command reads, or to which errors are written.
    Other,
}

#[derive(Default)]
struct Lexer {
    pipelines: Vec<Pipeline>,
    current: Pipeline,
    words: Vec<String>,
    word: String,
    /// Whether a word began, which may be an empty pair of quotes.
    has_word: bool,
    quote: Option<char>,
    /// Number of open substitutions: `$(`.
    depth: usize,
    target: Target,
    is_comment: bool,
}

impl Lexer {
    /// Reads a letter in quotes or in a substitution. Returns `false` for other letters.
    fn read_quoted(&mut self, letter: char, chars: &mut Chars<'_>) -> bool {
        if self.is_comment {
            return true;
        }
        if let Some(quote) = self.quote {
            match letter {
                _ if letter == quote => self.quote = None,
                '\\' if quote == '"' => self.word.extend(chars.next()),
                _ => self.word.push(letter),
            }
            return true;
        }
        match letter {
            '\'' | '"' => {
                self.quote = Some(letter);
                self.has_word = true;
            }
            '\\' => {
                self.word.extend(chars.next());
                self.has_word = true;
            }
            '$' if chars.peek() == Some(&'(') => {
                self.word.push(letter);
                self.word.extend(chars.next());
                self.has_word = true;
                self.depth += 1;
            }
            '(' | ')' if self.depth > 0 => {
                self.word.push(letter);
                self.depth = if letter == ')' {
                    self.depth - 1
                } else {
                    self.depth + 1
                };
            }
            _ if self.depth > 0 => self.word.push(letter),
            _ => return false,
        }
        true
    }

    fn read_operator(&mut self, letter: char, chars: &mut Chars<'_>) {
        match letter {
            '#' if !self.has_word => self.is_comment = true,
            '|' if chars.next_if_eq(&'|').is_some() => self.end_pipeline(),
            '|' => {
                chars.next_if_eq(&'&');
                self.end_stage();
            }
            '&' if chars.peek() == Some(&'>') => {
                chars.next();
                self.start_redirection("", chars);
            }
            ';' | '&' => {
                chars.next_if_eq(&letter);
                self.end_pipeline();
            }
            '>' => {
                let is_number =
                    self.has_word && self.word.bytes().all(|byte| byte.is_ascii_digit());
                let number = if is_number {
                    self.has_word = false;
                    std::mem::take(&mut self.word)
                } else {
                    String::new()
                };
                self.start_redirection(&number, chars);
            }
            '<' => {
                self.end_word();
                while chars.next_if_eq(&'<').is_some() {}
                self.target = Target::Other;
            }
            '(' | ')' => self.end_word(),
            letter if letter.is_whitespace() => self.end_word(),
            letter => {
                self.word.push(letter);
                self.has_word = true;
            }
        }
    }

    /// Reads `>` after the number of a file descriptor.
    fn start_redirection(&mut self, number: &str, chars: &mut Chars<'_>) {
        self.end_word();
        chars.next_if(|next| matches!(next, '>' | '|'));
        let is_output = matches!(number, "" | "1");
        // `2>&1` and `>&2` remain on the terminal.
        let is_copy = chars.next_if_eq(&'&').is_some();
        self.target = if is_output && !is_copy {
            Target::Output
        } else {
            Target::Other
        };
    }

    fn end_word(&mut self) {
        if !self.has_word {
            return;
        }
        self.has_word = false;
        let word = std::mem::take(&mut self.word);
        match std::mem::take(&mut self.target) {
            Target::Word => self.words.push(word),
            Target::Output => self.current.output_file = Some(word),
            Target::Other => {}
        }
    }

    fn end_stage(&mut self) {
        self.end_word();
        self.target = Target::Word;
        let words = std::mem::take(&mut self.words);
        let start = words
            .iter()
            .position(|word| !KEYWORDS.contains(&word.as_str()));
        let words: Vec<String> = words
            .into_iter()
            .skip(start.unwrap_or(usize::MAX))
            .collect();
        let first = words.first().map(String::as_str).unwrap_or_default();
        if !words.is_empty() && first != "for" && !ENDS.contains(&first) {
            self.current.stages.push(words);
        }
    }

    fn end_pipeline(&mut self) {
        self.end_stage();
        let pipeline = std::mem::take(&mut self.current);
        if !pipeline.stages.is_empty() {
            self.pipelines.push(pipeline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(line: &str) -> String {
        let pipelines = parse(line).unwrap_or_default();
        let pipelines = pipelines.iter().map(|pipeline| {
            let stages: Vec<String> = pipeline
                .stages
                .iter()
                .map(|words| words.join("_"))
                .collect();
            let target = pipeline.output_file.as_ref();
            let target = target.map(|target| format!(" to {target}"));
            stages.join(" | ") + &target.unwrap_or_default()
        });
        pipelines.collect::<Vec<String>>().join(", ")
    }

    #[test]
    fn command_line_is_split_into_pipelines() {
        let lines = [
            "ip netns exec x ip route; ip route",
            "cd /tmp && ip addr || true &",
            "iptables-save>rules.txt 2>/dev/null",
            "iptables-save 2>&1 | tee -a rules.txt >/dev/null",
            "ip route &> all.txt",
            "sh -c 'ip route; ip rule' # both",
            "nsenter -t $(pidof nginx | head) -n ip route < /dev/null",
            "for i in 1 2; do nsenter -t $i -n ip route; done",
            "echo a\\;b \"\" >&2",
        ];
        let described = lines.map(describe).join("\n");
        insta::assert_snapshot!(described, @"
        ip_netns_exec_x_ip_route, ip_route
        cd_/tmp, ip_addr, true
        iptables-save to rules.txt
        iptables-save | tee_-a_rules.txt to /dev/null
        ip_route to all.txt
        sh_-c_ip route; ip rule
        nsenter_-t_$(pidof nginx | head)_-n_ip_route
        nsenter_-t_$i_-n_ip_route
        echo_a;b_
        ");
        assert_eq!(parse("echo 'open"), None);
    }
}
