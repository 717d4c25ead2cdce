//! Sizes and themes in which the tests look at pages.

use serde_json::json;

use crate::webdriver::Browser;

/// Size of the window and theme.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Width in CSS pixels.
    pub width: u32,
    pub theme: &'static str,
}

/// Height of the window in CSS pixels.
const HEIGHT: u32 = 900;

impl View {
    pub const ALL: [Self; 4] = [
        Self::new(1280, "light"),
        Self::new(1280, "dark"),
        Self::NARROW,
        Self::new(400, "dark"),
    ];

    /// Width of a phone.
    pub const NARROW: Self = Self::new(400, "light");

    const fn new(width: u32, theme: &'static str) -> Self {
        Self { width, theme }
    }

    /// Shows the pages of a browser in this view.
    #[track_caller]
    pub fn apply(self, browser: &Browser) {
        browser.run_devtools(
            "Emulation.setDeviceMetricsOverride",
            &json!({
                "width": self.width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false,
            }),
        );
        browser.run_devtools(
            "Emulation.setEmulatedMedia",
            &json!({"features": [{"name": "prefers-color-scheme", "value": self.theme}]}),
        );
        browser.wait_until(
            "innerWidth === arguments[0] && \
             matchMedia(`(prefers-color-scheme: ${arguments[1]})`).matches",
            &[json!(self.width), json!(self.theme)],
        );
    }
}
