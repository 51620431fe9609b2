package command

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// "demo --page" shows both ends, until an interrupt.
func TestDemoPage(t *testing.T) {
	t.Parallel()
	cmd := command(t, "demo", "--page")
	stdout, err := cmd.StdoutPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
	page, out := "", bufio.NewScanner(stdout)
	for !strings.HasPrefix(out.Text(), "Observed: ") { // RPCs are made
		if !out.Scan() {
			t.Fatal("no steps")
		}
		if fields := strings.Fields(out.Text()); len(fields) == 3 && fields[0] == "status" {
			page = fields[2]
		}
	}
	if !strings.HasPrefix(page, "http://127.0.0.1:") {
		t.Fatalf("the page is at %q, want it on loopback", page)
	}
	for _, want := range []string{`"target":"xds:///echo.example.com"`, `"name":"stable"`, `"node":"dynxds-demo"`} {
		if body := cmdtest.Get(t, page+"data?show=channels&show=clusters&show=peers"); !strings.Contains(body, want) {
			t.Errorf("the page does not have %s: %s", want, body)
		}
	}
	for out.Scan() {
		if strings.HasPrefix(out.Text(), "The RPCs go on ") {
			xdstest.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	xdstest.NoError(t, out.Err())
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// An address may follow --page and --admin with a space or with "=", and may be left out.
func TestAddressesThatMayBeLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	xdstest.NoError(t, os.WriteFile(filepath.Join(dir, "a:1"), nil, 0o600))
	for line, want := range map[string]string{
		"serve DIR --page :8080":              "serve DIR --page=:8080",
		"serve --page localhost:8080 DIR":     "serve --page=localhost:8080 DIR",
		"serve --admin [::1]:80 --page DIR":   "serve --admin=[::1]:80 --page DIR",
		"serve --page=:80 DIR":                "serve --page=:80 DIR",
		"serve --page DIR:x":                  "serve --page DIR:x",
		"serve --page " + dir + "/a:1":        "serve --page " + dir + "/a:1",
		"clients --admin a:1,b:2 -o json":     "clients --admin a:1,b:2 -o json",
		"clients --admin a:1 --timeout 1s":    "clients --admin=a:1 --timeout 1s",
		"serve DIR --listen :8080 --admin :1": "serve DIR --listen :8080 --admin=:1",
	} {
		xdstest.Equal(t, line, want, strings.Join(withAddresses(strings.Fields(line)), " "))
	}
}
