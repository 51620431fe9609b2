package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// "serve --page" shows what is served; a browser that follows the page does not hold up the end.
func TestServePage(t *testing.T) {
	t.Parallel()
	p := startServe(t, exampleMesh, "--page")
	url := p.pages("--page")
	p.logged(`"msg":"serving"`)
	if body := cmdtest.Get(t, url+"data?show=overview&show=served&served.q=backend"); !strings.Contains(body, `"plane":true`) || !strings.Contains(body, `"type":"Listener","name":"backend`) {
		t.Errorf("the page does not show the service backend: %s", body)
	}
	resp, err := http.Get(url + "events?show=peers")
	xdstest.NoError(t, err)
	defer resp.Body.Close()
	p.signal(syscall.SIGTERM)
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
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
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
		if body := cmdtest.Get(t, setup.Page+"data?show=channels&show=traffic&show=peers"); !strings.Contains(body, want) {
			t.Errorf("the page does not have %s: %s", want, body)
		}
	}
	for out.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
