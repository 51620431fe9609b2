package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// ask reads an address of a status page.
func ask(t *testing.T, address string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(testutils.Context(t), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v, %s", address, resp.Status, err, body)
	}
	return string(body)
}

// "serve --page" shows what is served; a browser that follows the page does not hold up the end.
func TestServePage(t *testing.T) {
	t.Parallel()
	p := startServe(t, exampleMesh, "--page")
	var page struct {
		URL  string
		Open bool
	}
	if err := json.Unmarshal([]byte(p.logged(`"flag":"--page"`)), &page); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(page.URL, "http://127.0.0.1:") || page.Open {
		t.Errorf("the page is at %s, open to others: %v, want loopback", page.URL, page.Open)
	}
	p.logged(`"msg":"serving"`)
	if body := ask(t, page.URL+"data?show=overview&show=served&served.q=backend"); !strings.Contains(body, `"plane":true`) || !strings.Contains(body, `"type":"Listener","name":"backend`) {
		t.Errorf("the page does not show the service backend: %s", body)
	}
	resp, err := http.Get(page.URL + "events?show=peers")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// "demo --page" shows both ends.
func TestDemoPage(t *testing.T) {
	t.Parallel()
	cmd := command(t, "demo", "--page", "--duration", "2s", "--json")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stdout)
	if !out.Scan() {
		t.Fatal("no output")
	}
	var setup struct{ Page string }
	if err := json.Unmarshal(out.Bytes(), &setup); err != nil || !strings.HasPrefix(setup.Page, "http://127.0.0.1:") {
		t.Fatalf("%v: %s, want a page on loopback", err, out.Text())
	}
	for !strings.Contains(out.Text(), `"event":"observed"`) { // RPCs are made
		if !out.Scan() {
			t.Fatal("no steps")
		}
	}
	for _, want := range []string{`"target":"xds:///echo.example.com"`, `"cluster":"stable"`, `"node":"dynxds-demo"`} {
		if body := ask(t, setup.Page+"data?show=channels&show=traffic&show=peers"); !strings.Contains(body, want) {
			t.Errorf("the page does not have %s: %s", want, body)
		}
	}
	for out.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
