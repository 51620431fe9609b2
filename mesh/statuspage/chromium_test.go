package statuspage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// chromium is a headless Chromium with one tab, driven by the Chrome DevTools Protocol over a
// pipe. Its messages are read while a call waits for its answer.
type chromium struct {
	t   *testing.T
	in  *os.File
	out *bufio.Reader
	// session is that of the tab.
	session string
	last    int // command
	// complaints are the errors and warnings of the console, exceptions and violations of the
	// content security policy included.
	complaints []string
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// startChromium starts a browser that ends with the test, which is skipped if there is none.
func startChromium(t *testing.T, width, height int) *chromium {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium: install it (Debian: apt-get install chromium) to test the page in a browser")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	toBrowser, in, err := os.Pipe()
	xdstest.NoError(t, err)
	out, fromBrowser, err := os.Pipe()
	xdstest.NoError(t, err)
	// It must not outlive the test, so t.TempDir, which fails the test if a browser that is ending
	// still writes there, is not for its profile.
	profile, err := os.MkdirTemp("", "statuspage-")
	xdstest.NoError(t, err)
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
		"--user-data-dir="+profile, fmt.Sprintf("--window-size=%d,%d", width, height), "about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	xdstest.NoError(t, cmd.Start())
	toBrowser.Close()
	fromBrowser.Close()
	c := &chromium{t: t, in: in, out: bufio.NewReader(out)}
	cmd.WaitDelay = time.Second // its children may keep standard error
	t.Cleanup(func() {
		in.Close()
		cancel() // kills it
		_ = cmd.Wait()
		out.Close()
		_ = os.RemoveAll(profile)
		if t.Failed() {
			t.Logf("the browser's log: %s", stderr.String())
		}
	})
	c.open(width, height)
	return c
}

// open opens the tab.
func (c *chromium) open(width, height int) {
	c.t.Helper()
	var target struct {
		ID string `json:"targetId"`
	}
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	c.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	c.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		c.call(domain+".enable", nil, nil)
	}
	c.resize(width, height)
}

// resize changes the size of the tab, in CSS pixels.
func (c *chromium) resize(width, height int) {
	c.t.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// scheme sets prefers-color-scheme.
func (c *chromium) scheme(value string) {
	c.t.Helper()
	c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// navigate opens an address, and waits until the page has something to show.
func (c *chromium) navigate(address string) {
	c.t.Helper()
	c.call("Page.navigate", map[string]any{"url": address}, nil)
	c.await(`document.body?.hasAttribute("data-ready")`)
}

// eval evaluates an expression, which may be a promise.
func (c *chromium) eval(expression string, result any) {
	c.t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	c.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if e := answer.Exception; e != nil {
		c.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if result != nil {
		xdstest.NoError(c.t, json.Unmarshal(answer.Result.Value, result))
	}
}

// await waits until an expression is true: the page evaluates it every 20 ms. One that throws, as what it is about is not there yet,
// is not true yet. It is evaluated within a promise: after an exception in the function of a timer, the promise would never be settled,
// and eval would wait for it until the browser is killed.
func (c *chromium) await(condition string) {
	c.t.Helper()
	why := "not evaluated"
	for deadline := time.Now().Add(30 * time.Second); why != ""; {
		c.eval(`new Promise(done => setTimeout(done, 20)).then(() => (`+condition+`) ? "" : "false").catch(String)`, &why)
		if why != "" && time.Now().After(deadline) {
			c.screenshot("failed")
			c.t.Fatalf("never true, at last %s: %s\nThe page shows:\n%.4000s", why, condition, c.text())
		}
	}
}

// text returns the text that the page shows.
func (c *chromium) text() (text string) {
	c.t.Helper()
	c.eval("document.body.innerText", &text)
	return text
}

// screenshot writes a picture of the whole page to the folder that the variable
// STATUSPAGE_SCREENSHOTS names, if it is set.
func (c *chromium) screenshot(name string) {
	c.t.Helper()
	folder := os.Getenv("STATUSPAGE_SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture struct {
		Data string `json:"data"`
	}
	c.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &picture)
	content, err := base64.StdEncoding.DecodeString(picture.Data)
	xdstest.NoError(c.t, err)
	xdstest.NoError(c.t, os.WriteFile(folder+"/"+name+".png", content, 0o644))
}

// fits checks that nothing is wider than the window.
func (c *chromium) fits() {
	c.t.Helper()
	var widest struct {
		Scroll, Window int
		Who            []string
	}
	c.eval(`({scroll: document.scrollingElement.scrollWidth, window: innerWidth, who: [...document.body.querySelectorAll("*")].filter(e =>
		e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 60))})`, &widest)
	if widest.Scroll > widest.Window {
		c.t.Errorf("the page is %d pixels wide in a window of %d: %q", widest.Scroll, widest.Window, widest.Who)
	}
}

// quiet checks that the console has no complaint.
func (c *chromium) quiet() {
	c.t.Helper()
	c.eval("0", nil) // reads what has been sent before the answer
	if len(c.complaints) > 0 {
		c.t.Errorf("the console complains:\n%s", strings.Join(c.complaints, "\n"))
	}
}

// call sends a command to the tab, or to the browser before there is one, and waits for the
// answer. When the browser is killed, as the time is up, its output ends.
func (c *chromium) call(method string, params, result any) {
	c.t.Helper()
	c.last++
	command := map[string]any{"id": c.last, "method": method}
	if params != nil {
		command["params"] = params
	}
	if c.session != "" {
		command["sessionId"] = c.session
	}
	content, err := json.Marshal(command)
	xdstest.NoError(c.t, err)
	if _, err := c.in.Write(append(content, 0)); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	for {
		line, err := c.out.ReadBytes(0)
		if err != nil {
			c.t.Fatalf("%s: the browser has ended: %v", method, err)
		}
		var m message
		xdstest.NoError(c.t, json.Unmarshal(line[:len(line)-1], &m))
		switch {
		case m.ID != c.last:
			c.event(m)
			continue
		case m.Error != nil:
			c.t.Fatalf("%s: %s", method, m.Error.Message)
		case result != nil:
			xdstest.NoError(c.t, json.Unmarshal(m.Result, result))
		}
		return
	}
}

// event notes what the browser complains of.
func (c *chromium) event(m message) {
	switch m.Method {
	case "Runtime.exceptionThrown":
		c.complaints = append(c.complaints, string(m.Params))
	case "Runtime.consoleAPICalled", "Log.entryAdded":
		var p struct {
			Type  string `json:"type"`
			Entry struct {
				Level string `json:"level"`
			} `json:"entry"`
		}
		if json.Unmarshal(m.Params, &p) == nil && (p.Type == "error" || p.Type == "warning" || p.Entry.Level == "error" || p.Entry.Level == "warning") {
			c.complaints = append(c.complaints, string(m.Params))
		}
	}
}
