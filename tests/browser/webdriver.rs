//! Starts chromedriver, and controls headless Chromium through `thirtyfour`.
//!
//! The tests are not asynchronous, so each method waits for its command.

use std::future::Future;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use data_encoding::BASE64;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use svclab_test_support::processes::descendants;
use tempfile::TempDir;
use thirtyfour::error::WebDriverResult;
use thirtyfour::{
    BrowserLogEntry, CapabilitiesHelper as _, ChromiumLikeCapabilities as _, DesiredCapabilities,
    LoggingPrefsLogLevel, WebDriver, WebElement,
};
use tokio::runtime::{Builder, Runtime};

/// Maximum time for a command. A busy machine needs seconds to start Chromium.
const MAX_COMMAND_TIME: Duration = Duration::from_mins(3);

/// Maximum time until a condition in a page is true.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Line of chromedriver that ends with its port.
const STARTED: &str = "was started successfully on port ";

/// Arguments of Chromium.
const ARGUMENTS: [&str; 7] = [
    "--headless=new",
    // Tests run as root, and in containers without user namespaces.
    "--no-sandbox",
    "--disable-gpu",
    // The width of a page is that of the window.
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
];

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
    runtime: Runtime,
    session: WebDriver,
    _profile: TempDir,
    _driver: &'d Driver,
}

impl<'d> Browser<'d> {
    /// Starts Chromium with an empty page and empty logs.
    pub fn start(driver: &'d Driver) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let profile = tempfile::tempdir().expect("a directory");
        let address = format!("http://127.0.0.1:{}", driver.port);
        let capabilities = capabilities(&profile).expect("JSON");
        let session = WebDriver::builder(address, capabilities).request_timeout(MAX_COMMAND_TIME);
        let session = runtime.block_on(session.connect());
        let browser = Self {
            session: session.unwrap_or_else(|error| panic!("Chromium does not start: {error}")),
            runtime,
            _profile: profile,
            _driver: driver,
        };
        // The first page of Chromium makes requests of its own.
        browser.open("about:blank");
        browser.take_log("performance");
        browser
    }

    /// Waits for the result of a command.
    #[track_caller]
    fn wait<T>(&self, command: impl Future<Output = WebDriverResult<T>>) -> T {
        let result = self.runtime.block_on(command);
        result.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens an address, and waits until its page is loaded.
    #[track_caller]
    pub fn open(&self, address: &str) {
        self.wait(self.session.goto(address));
    }

    /// Returns to the previous entry of the history.
    #[track_caller]
    pub fn go_back(&self) {
        self.wait(self.session.back());
    }

    /// Opens the next entry of the history.
    #[track_caller]
    pub fn go_forward(&self) {
        self.wait(self.session.forward());
    }

    /// Runs the body of a function in the page, and returns its result. `arguments` contains the
    /// arguments. A promise is awaited.
    #[track_caller]
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        let result = self.wait(self.session.execute(script, arguments));
        result.json().clone()
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
        let result = self.session.execute(script, arguments);
        if let Err(error) = self.runtime.block_on(result) {
            panic!("not true: {expression} with {arguments:?}: {error}");
        }
    }

    /// Scrolls to an element that a script returned, and clicks it.
    #[track_caller]
    pub fn click(&self, element: &Value) {
        let handle = self.session.handle().clone();
        let element = WebElement::from_json(element.clone(), handle)
            .unwrap_or_else(|error| panic!("no element: {element}: {error}"));
        self.wait(element.click());
    }

    /// Presses and releases each key, in the element that has the focus.
    #[track_caller]
    pub fn press_keys(&self, keys: &str) {
        self.wait(self.session.action_chain().send_keys(keys).perform());
    }

    /// Returns the new entries of a log: `browser` for the console, `performance` for the network.
    #[track_caller]
    pub fn take_log(&self, kind: &str) -> Vec<BrowserLogEntry> {
        self.wait(self.session.get_log(kind))
    }

    /// Runs a command of the Chrome `DevTools` Protocol.
    #[track_caller]
    pub fn run_devtools(&self, command: &str, parameters: &Value) -> Value {
        self.wait(self.session.cdp().send_raw(command, parameters))
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
        let _ = self.runtime.block_on(self.session.clone().quit());
    }
}

/// Returns the capabilities of a browser with this profile.
fn capabilities(profile: &TempDir) -> WebDriverResult<thirtyfour::ChromeCapabilities> {
    let mut capabilities = DesiredCapabilities::chrome();
    for argument in ARGUMENTS {
        capabilities.add_arg(argument)?;
    }
    capabilities.add_arg(&format!("--user-data-dir={}", profile.path().display()))?;
    for log in ["browser", "performance"] {
        capabilities.set_logging_prefs(log, LoggingPrefsLogLevel::All)?;
    }
    let timeouts = json!({
        "script": MAX_WAIT.as_millis(), "pageLoad": MAX_COMMAND_TIME.as_millis(),
    });
    capabilities.set("timeouts", timeouts)?;
    // An open dialog fails the next command.
    capabilities.set("unhandledPromptBehavior", "dismiss and notify")?;
    Ok(capabilities)
}
