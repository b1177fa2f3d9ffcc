"""The page in a headless Chromium.

README's picture of it: chromium --headless --screenshot=docs/page.png --window-size=1440,900 http://127.0.0.1:8080/
"""

import shutil
import time
import unittest

from play import AWAY, TOKEN, Play, PlayTest

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PICTURES = ["input", "target", "prediction", "error"]
CHARTS = ["chart-novelty", "chart-loss", "chart-rate", "chart-time", "chart-latency"]

# A canvas's number of colours, and a hash of its pixels.
LOOK_AT = """
const canvas = arguments[0], seen = new Set();
const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
let sum = 0;
for (let i = 0; i < data.length; i += 4) {
  if (data[i + 3] === 0) continue;
  seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  sum = (sum * 31 + data[i] + 7 * data[i + 1] + 13 * data[i + 2]) % 1000003;
}
return [seen.size, sum];"""

TOO_WIDE = """
const right = (e) => e.getBoundingClientRect().right;
const edge = (e) => e.closest('.card') ? right(e.closest('.card')) - 6 : innerWidth;
return [...document.querySelectorAll('body *')].filter((e) => e.getClientRects().length > 0 && !e.closest('.view, .thumb'))
  .filter((e) => !e.matches('.card, #status') && right(e) > edge(e) + 0.5)
  .map((e) => e.tagName + '.' + e.className + '#' + e.id + ' ' + e.textContent);"""

# Text that is cut off or overlaps other text.
CUT_OFF = """
return [...document.querySelectorAll('#run, #status *, .class, .big, .small, h2, figcaption, button, .reason, time, .stage p')]
  .filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline')
  .map((e) => e.className + ' ' + e.textContent);"""


def browser():
    options = Options()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--hide-scrollbars", "--force-color-profile=srgb"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


@unittest.skipUnless(webdriver and CHROMIUM and DRIVER,
                     "no browser here: chromium, chromium-driver and python3-selenium are wanted")
class PageTest(PlayTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = cls.enterClassContext(browser())

    def setUp(self):
        self.resize(1440, 900)
        self.prefer("dark")

    def open(self, url, engine=False):
        self.browser.get("about:blank")
        self.complaints()  # of the page before, whose run has ended
        self.browser.get(url)
        self.wait_for(lambda: self.text("fps") not in ("–", ""), "no numbers")
        if engine:
            self.find("engine").find_element(By.TAG_NAME, "summary").click()

    def opened(self, engine=False, **options):
        """A run whose page is open."""
        play = self.play(**options)
        self.open(play.url, engine)
        return play

    def found(self):
        """The events on the page: (reason, width of its picture as loaded), the newest first."""
        return [tuple(one) for one in self.run_script("""
            return [...document.querySelectorAll('#events li')].map((row) => {
              const picture = row.querySelector('img');
              picture.loading = 'eager';
              return [row.querySelector('.reason').textContent, picture.naturalWidth];
            });""")]

    def resize(self, width, height, mobile=False):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})

    def prefer(self, scheme):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def run_script(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def find(self, name):
        return self.browser.find_element(By.ID, name)

    def text(self, name):
        return self.run_script("return document.getElementById(arguments[0]).textContent", name)

    def complaints(self):
        """The console, without advice on how this test reads canvases."""
        return [entry["message"] for entry in self.browser.get_log("browser")
                if entry["level"] != "INFO" and entry["source"] != "rendering"]

    def test_numbers_pictures_and_charts_are_live(self):
        self.opened(engine=True)
        for name in ("run", "loss", "latency-why"):
            before = self.text(name)
            self.wait_for(lambda: self.text(name) != before, f"{name} stands still")
        self.assertIn("***@camera.example", self.text("run"))
        self.assertEqual(self.text("verdict-text"), "Holds")
        for name in ["scene", *PICTURES]:
            colours, first = self.run_script(LOOK_AT, self.find(name))
            self.assertGreater(colours, 50, name)
            self.wait_for(lambda: self.run_script(LOOK_AT, self.find(name))[1] != first, f"{name} stands still")
        samples = self.run_script("return arguments[0].map((id) => document.getElementById(id).dataset.sample)", PICTURES)
        self.assertEqual(len(set(samples)), 1, "pictures of different samples")
        for name in CHARTS:
            canvases = self.wait_for(lambda: self.find(name).find_elements(By.TAG_NAME, "canvas"), f"no {name}")
            self.wait_for(lambda: max(self.run_script(LOOK_AT, one)[0] for one in canvases) > 2, f"{name} is empty")
            key = self.find(name).find_element(By.XPATH, "../p")
            self.wait_for(lambda: "–" not in key.text and any(c.isdigit() for c in key.text), f"{name} has no numbers")
        lanes = self.browser.find_elements(By.CLASS_NAME, "lane")
        self.assertEqual(len(lanes), 4)
        self.assertTrue(all(self.run_script(LOOK_AT, lane)[0] > 2 for lane in lanes))
        self.browser.find_element(By.CSS_SELECTOR, "[data-span=whole]").click()
        time.sleep(1)
        self.assertEqual(self.complaints(), [])

    def test_each_pixels_class_has_a_colour_that_the_legend_names(self):
        self.opened(classes=4)
        self.wait_for(lambda: self.run_script(LOOK_AT, self.find("map"))[0] > 3, "no class map")
        self.assertTrue(self.find("map").is_displayed())
        legend = self.wait_for(lambda: self.find("classes").find_elements(By.TAG_NAME, "span"), "no legend")
        self.assertEqual([one.text for one in legend], [f"class {i}" for i in range(4)])
        shown = [self.run_script("return getComputedStyle(arguments[0], '::before').backgroundColor", one) for one in legend]
        self.assertEqual(shown,
                         ["rgb(0, 0, 0)", "rgb(128, 0, 0)", "rgb(0, 128, 0)", "rgb(128, 128, 0)"])
        self.assertNotIn("×", self.find("error").find_element(By.XPATH, "..").text, "a wrong class is no distance")
        for width in (390, 1440):
            self.resize(width, 900, mobile=width < 600)
            self.wait_for(lambda: self.run_script(TOO_WIDE) == [] and self.run_script(CUT_OFF) == [], lambda: (width, self.run_script(TOO_WIDE)))
        self.assertEqual(self.complaints(), [])

    def test_controls_reach_the_run(self):
        play = self.opened(engine=True)
        self.find("pause").click()
        self.wait_for(lambda: self.text("status-text") == "Paused", "not paused")
        trained = play.tell()[0]
        time.sleep(0.3)  # of which a tenth would do
        self.assertEqual(play.tell()[0], trained)
        self.wait_for(lambda: self.text("pause") == "Resume", "no way back")
        self.find("pause").click()
        self.wait_for(lambda: play.tell()[0] > trained, "not resumed")
        self.find("save").click()
        self.wait_for(lambda: "saved at frame" in self.text("notice"), "not saved")
        self.assertEqual(play.state()["controls"]["saves"], 1)
        rate = self.find("rate")
        self.assertEqual(rate.get_attribute("value"), "0.003")
        rate.send_keys(Keys.CONTROL, "a", Keys.NULL, "0.01", Keys.ENTER)  # clear() blurs: the next state would fill it
        self.wait_for(lambda: play.state()["controls"]["learning_rate"] == 0.01, "rate not set")
        rate.send_keys(Keys.CONTROL, "a", Keys.NULL, "-1", Keys.ENTER)
        self.wait_for(lambda: "must be from 0" in self.text("notice"), "nobody complained")
        self.assertEqual(play.state()["controls"]["learning_rate"], 0.01)
        self.wait_for(lambda: rate.get_attribute("value") == "0.01", "what was refused still stands there")

    def test_a_button_says_what_frames_show(self):
        play = self.opened()
        day, night = self.find("labels").find_elements(By.TAG_NAME, "button")
        for pressed, label in ((day, "day"), (night, "night"), (night, None)):
            pressed.click()
            self.wait_for(lambda: play.state()["controls"]["label"] == label, label)
            self.wait_for(lambda: [b.get_attribute("aria-pressed") for b in (day, night)]
                          == [str(label == name).lower() for name in ("day", "night")], "another button is pressed")
        day.click()
        forget = self.find("forget")
        self.wait_for(lambda: self.text("forget") == "Forget “day”", "it can't be taken back")
        forget.click()
        self.wait_for(lambda: play.state()["controls"]["label"] is None and not forget.is_displayed(), "not forgotten")

    def test_events_have_their_pictures_whenever_the_page_is_opened(self):
        folder = self.folder()
        for snapshots in (folder, ""):
            play = self.play(snapshots=snapshots)
            play.tell("event moved")
            self.wait_for(lambda: len(play.events()) == 1)
            play.tell("event local")
            self.wait_for(lambda: len(play.events()) == 2)
            self.open(play.url)
            reasons = ["Something new at door", "The camera moved at door"]
            for width in (390, 1440, None):  # None: the tab is loaded again
                self.resize(width or 1440, 900, mobile=width == 390)
                if not width:
                    self.browser.refresh()
                self.wait_for(lambda: [reason for reason, wide in self.found() if wide > 0] == reasons,
                              lambda: (snapshots, width, self.found()))
            thumb, box = (self.run_script("const r = document.querySelector(arguments[0]).getBoundingClientRect();"
                                          "return [r.x, r.y, r.width, r.height]", one) for one in (".thumb", ".thumb .box"))
            for i, share in ((0, 10 / 64), (1, 20 / 64)):  # of a picture of 64x64
                self.assertAlmostEqual((box[i] - thumb[i]) / thumb[i + 2], share, delta=0.02)
            self.browser.find_element(By.CLASS_NAME, "thumb").click()
            self.wait_for(lambda: self.run_script("return document.getElementById('shown-picture').naturalWidth") > 0, "not enlarged")
            self.find("shown").find_element(By.TAG_NAME, "button").click()
            self.wait_for(lambda: not self.find("shown").is_displayed(), "it stays")
            self.assertEqual(self.complaints(), [])
        self.opened(snapshots=folder)  # after a restart
        self.wait_for(lambda: [wide > 0 for _, wide in self.found()] == [True, True], self.found)

    def test_what_is_said_of_events_lasts_and_teaches(self):
        folder = self.folder()
        play = self.opened(snapshots=folder)
        for number in (1, 2):
            play.tell("event local")
            self.wait_for(lambda: len(self.found()) == number, "not found")

        def press(row, name):
            # At once: the list may be drawn anew between finding and clicking.
            self.browser.execute_script("document.querySelectorAll('#events li')[arguments[0]]"
                                        ".getElementsByClassName(arguments[1])[0].click()", row, name)
        press(1, "normal")
        self.wait_for(lambda: "forgotten" in self.text("notice"), "nobody complained")
        press(1, "seen")
        self.wait_for(lambda: self.text("unseen") == "1 new", "not marked")
        press(0, "normal")
        self.wait_for(lambda: self.find("unseen").is_displayed() is False, "not marked")
        self.assertEqual(play.state()["novelty"]["taught"], [1, 2])
        self.opened(snapshots=folder)
        self.wait_for(lambda: [one.text for one in self.browser.find_elements(By.CLASS_NAME, "mark")]
                      == ["Learned as normal", "Seen"], "forgotten")
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "#events button.normal"), [], "of an earlier run")

    def test_an_event_is_drawn_on_the_picture(self):
        play = self.opened()
        self.wait_for(lambda: self.browser.find_elements(By.CSS_SELECTOR, "#marks polygon.zone + text"), "no zone")
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#marks polygon.ignored")), 1)
        self.assertEqual(self.text("status-text"), "Watching")
        play.tell("event local")
        box = self.wait_for(lambda: self.browser.find_elements(By.CSS_SELECTOR, "#marks rect.box"), "no box")[0]
        self.assertEqual([float(box.get_attribute(name)) for name in ("x", "y", "width", "height")], [40, 60, 64, 36],
                         "in pixels of the camera's picture, 256x192 instead of 64x64")
        self.assertEqual(self.text("status-text"), "Something new at door")
        play.change(novelty={"in_event": False})
        self.wait_for(lambda: not self.browser.find_elements(By.CSS_SELECTOR, "#marks rect.box"), "the box stays")

    def test_what_it_sees_is_large(self):
        play = self.opened()
        for answer, word, why in (({"class": "night", "probability": 0.973}, "night", "97 % sure"),
                                  ({"class": None, "neither": True}, "None of them", "unlike all")):
            play.change(answer=answer)
            self.wait_for(lambda: self.text("answer-class") == word and why in self.text("answer-why"), word)
        self.assertGreater(self.find("answer-class").size["height"], 40)

    def test_frames_without_a_label_are_watched_all_the_same(self):
        play = self.opened()
        play.change(realtime={"judged": False, "reason": "no frame was learned from lately"})
        self.wait_for(lambda: "only predicted now" in self.text("fps-why"), "they are not counted")
        self.assertEqual(self.text("status-text"), "Watching")
        self.assertEqual(self.find("status").get_attribute("data-mood"), "good")
        self.wait_for(lambda: float(self.text("fps")) > 5, "no frames")

    def test_dark_and_light(self):
        self.prefer("light")
        self.opened()
        brightness = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)"
        self.assertGreater(self.run_script(brightness), 600)
        self.prefer("dark")
        self.wait_for(lambda: self.run_script(brightness) < 100, "still light")
        self.find("theme").click()
        self.wait_for(lambda: self.run_script(brightness) > 600, "still dark")
        self.browser.refresh()
        self.wait_for(lambda: self.run_script(brightness) > 600, "the choice was forgotten")
        self.find("theme").click()
        self.run_script("localStorage.clear()")

    def test_every_width(self):
        play = self.play()
        play.tell("event frozen")
        play.tell("event local")
        self.open(play.url)
        sizes = ((390, 844), (360, 640), (768, 1024), (1024, 768), (1280, 720), (1280, 800), (1440, 900), (1920, 1080))

        def fits_everywhere(moment):
            for width, height in sizes:
                self.resize(width, height, mobile=width < 600)
                time.sleep(0.4)  # until it is laid out anew; a busy machine takes longer
                for amiss in (TOO_WIDE, CUT_OFF):
                    self.wait_for(lambda: self.run_script(amiss) == [], lambda: (moment, width, self.run_script(amiss), self.complaints()))

        fits_everywhere("while it watches")
        self.assertLessEqual(self.run_script("return document.documentElement.scrollHeight"), 1080, "a wall scrolls")
        self.find("engine").find_element(By.TAG_NAME, "summary").click()
        fits_everywhere("with the engine")
        self.wait_for(lambda: self.find("chart-latency").find_elements(By.TAG_NAME, "canvas"), "no charts")
        pictures = [self.run_script(LOOK_AT, self.find(name))[0] for name in PICTURES]
        play.change(stream=AWAY)
        self.wait_for(lambda: self.text("status-text") == "Source away", "nothing noticed")
        fits_everywhere("while the source is away")
        self.assertEqual([self.run_script(LOOK_AT, self.find(name))[0] > 50 for name in PICTURES],
                         [colours > 50 for colours in pictures], "the last pictures are gone")

    def test_the_token_is_used_once(self):
        play = self.play(token=TOKEN)
        self.browser.get(play.url)
        self.assertIn("?token=", self.browser.find_element(By.TAG_NAME, "body").text)
        self.browser.get(play.url + "?token=" + TOKEN)
        self.wait_for(lambda: self.browser.current_url == play.url, "the token stays in the address")
        self.wait_for(lambda: self.text("fps") not in ("–", ""), "no numbers")
        self.assertEqual(self.run_script("return document.cookie"), "")
        self.find("save").click()
        self.wait_for(lambda: "saved" in self.text("notice"), "not saved")

    def test_it_comes_back(self):
        with Play() as first:
            self.open(first.url)
        self.wait_for(lambda: self.text("status-text") == "Disconnected", "nothing noticed")
        again = self.play(serve=f"127.0.0.1:{first.port}")
        self.assertEqual(again.port, first.port)
        self.wait_for(lambda: self.text("status-text") == "Watching", "does not come back")
        again.change(stream=AWAY)
        self.wait_for(lambda: self.text("status-text") == "Source away", "nothing noticed")
        self.assertNotIn("secret", self.text("status-why"))
