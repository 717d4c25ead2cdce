//! Client of the `WebDriver` protocol: starts chromedriver, and controls headless Chromium.
//!
//! Commands are requests with a JSON body to chromedriver on 127.0.0.1, and each answer is JSON.
//! Without a client crate, the tests need no further dependencies: fantoccini depends on `webdriver`,
//! whose licence MPL-2.0 is not in `deny.toml`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use data_encoding::BASE64;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use svclab_test_support::processes::descendants;
use tempfile::TempDir;

/// Maximum time for a command. A busy machine needs seconds to start Chromium.
const MAX_COMMAND_TIME: Duration = Duration::from_mins(3);

/// Maximum time until a condition in a page is true.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Line of chromedriver that ends with its port.
const STARTED: &str = "was started successfully on port ";

/// Running chromedriver.
#[derive(Debug)]
pub struct Driver {
    process: Child,
    port: u16,
}

impl Driver {
    /// Starts chromedriver on a free port.
    pub fn start() -> Self {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver is installed (Debian: chromium-driver)");
        let output = process.stdout.take().expect("piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let (_, port) = line.split_once(STARTED)?;
            port.trim_end_matches('.').parse().ok()
        });
        // Reads the rest, so that chromedriver never waits for the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            port: port.expect("chromedriver prints its port"),
        }
    }

    /// Sends a command. `path` begins after `/session`. Returns the value of the answer, or the error
    /// message of chromedriver.
    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if method == "POST" {
            body.to_string()
        } else {
            String::new()
        };
        let request = format!(
            "{method} /session{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\
             Content-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        let answer = self.exchange(&request);
        let (status, body) = answer.map_err(|error| format!("{method} {path}: {error}"))?;
        let mut answer: Value =
            serde_json::from_slice(&body).map_err(|error| format!("{status}: {error}"))?;
        let value = answer["value"].take();
        if status.starts_with("HTTP/1.1 200 ") {
            Ok(value)
        } else {
            let message = value["message"].as_str().unwrap_or(&status);
            Err(format!("{method} {path}: {message}"))
        }
    }

    /// Sends a request, and returns the status line and the body of the answer. chromedriver states
    /// the length of each body, and leaves the connection open.
    fn exchange(&self, request: &str) -> io::Result<(String, Vec<u8>)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(MAX_COMMAND_TIME))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = BufReader::new(stream);
        let mut status = String::new();
        answer.read_line(&mut status)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        Ok((status, body))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let process = i32::try_from(self.process.id()).expect("a PID");
        // A browser that did not answer in time has no session, and would outlive chromedriver.
        for browser in descendants(process) {
            let _ = kill(Pid::from_raw(browser), Signal::SIGKILL);
        }
        // An error means that chromedriver has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Chromium with a profile of its own. It ends when the value is dropped.
#[derive(Debug)]
pub struct Browser<'d> {
    driver: &'d Driver,
    session: String,
    _profile: TempDir,
}

impl<'d> Browser<'d> {
    /// Starts Chromium with an empty page and empty logs.
    pub fn start(driver: &'d Driver) -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        let arguments = [
            "--headless=new".to_owned(),
            // Tests run as root, and in containers without user namespaces.
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            // The width of a page is that of the window.
            "--hide-scrollbars".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": MAX_WAIT.as_millis(), "pageLoad": MAX_COMMAND_TIME.as_millis()},
            // An open dialog fails the next command.
            "unhandledPromptBehavior": "dismiss and notify",
        }}});
        let session = driver.send("POST", "", &capabilities);
        let session = session.unwrap_or_else(|error| panic!("Chromium does not start: {error}"));
        let session = session["sessionId"].as_str().expect("a session");
        let browser = Self {
            driver,
            session: session.to_owned(),
            _profile: profile,
        };
        // The first page of Chromium makes requests of its own.
        browser.open("about:blank");
        browser.take_log("performance");
        browser
    }

    /// Sends a command of the session.
    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("/{}/{path}", self.session);
        let answer = self.driver.send("POST", &path, body);
        answer.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens an address, and waits until its page is loaded.
    #[track_caller]
    pub fn open(&self, address: &str) {
        self.post("url", &json!({"url": address}));
    }

    /// Returns to the previous entry of the history.
    #[track_caller]
    pub fn go_back(&self) {
        self.post("back", &json!({}));
    }

    /// Opens the next entry of the history.
    #[track_caller]
    pub fn go_forward(&self) {
        self.post("forward", &json!({}));
    }

    /// Runs the body of a function in the page, and returns its result. `arguments` contains the
    /// arguments. A promise is awaited.
    #[track_caller]
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.post(
            "execute/sync",
            &json!({"script": script, "args": arguments}),
        )
    }

    /// Waits until an expression in the page is true. The page tests it before each frame.
    #[track_caller]
    pub fn wait_until(&self, expression: &str, arguments: &[Value]) {
        let script = format!(
            "const given = arguments; \
             const holds = function () {{ return Boolean({expression}); }}; \
             return new Promise((done) => {{ \
               const test = () => holds.apply(null, given) ? done(true) : requestAnimationFrame(test); \
               test(); \
             }});"
        );
        let path = format!("/{}/execute/sync", self.session);
        let body = json!({"script": script, "args": arguments});
        if let Err(error) = self.driver.send("POST", &path, &body) {
            panic!("not true: {expression} with {arguments:?}: {error}");
        }
    }

    /// Scrolls to an element that a script returned, and clicks it.
    #[track_caller]
    pub fn click(&self, element: &Value) {
        let id = element
            .as_object()
            .and_then(|element| element.values().next());
        let id = id.and_then(Value::as_str);
        let id = id.unwrap_or_else(|| panic!("no element: {element}"));
        self.post(&format!("element/{id}/click"), &json!({}));
    }

    /// Presses and releases each key, in the element that has the focus.
    #[track_caller]
    pub fn press_keys(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|event| json!({"type": event, "value": key})))
            .collect();
        let keyboard = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.post("actions", &keyboard);
    }

    /// Returns the new entries of a log: `browser` for the console, `performance` for the network.
    #[track_caller]
    pub fn take_log(&self, kind: &str) -> Vec<Value> {
        let entries = self.post("se/log", &json!({"type": kind}));
        entries.as_array().cloned().expect("a list")
    }

    /// Runs a command of the Chrome `DevTools` Protocol.
    #[track_caller]
    pub fn run_devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post(
            "goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        )
    }

    /// Returns a PNG of the whole page.
    #[track_caller]
    pub fn screenshot(&self) -> Vec<u8> {
        let layout = self.run_devtools("Page.getLayoutMetrics", &json!({}));
        let size = &layout["cssContentSize"];
        let clip = json!({
            "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1,
        });
        let parameters = json!({"captureBeyondViewport": true, "clip": clip});
        let picture = self.run_devtools("Page.captureScreenshot", &parameters);
        let picture = picture["data"].as_str().expect("a picture");
        BASE64.decode(picture.as_bytes()).expect("base64")
    }
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        // An error here must not hide the failure of a test.
        let path = format!("/{}", self.session);
        let _ = self.driver.send("DELETE", &path, &Value::Null);
    }
}
