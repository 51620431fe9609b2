package demo

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// A chart has a column for each sample, with the share of each backend, and the number of each step where it began. When
// there are too many, two become one.
func TestChart(t *testing.T) {
	t.Parallel()
	c := newChart([][2]string{{"a", "x"}, {"b", "y"}})
	total := map[string]int{}
	sample := func(a, b int) {
		total["a"] += a
		total["b"] += b
		c.sample(total)
	}
	c.begin("first")
	for range 3 {
		sample(90, 10)
	}
	c.begin("second")
	sample(50, 50)
	sample(0, 0)
	sample(0, 8)
	xdstest.Equal(t, "chart", ""+
		"a          x          0.0%  │▇▇▇▄  \n"+
		"b          y        100.0%  │▁▁▁▄ █\n"+
		"step                        └1──2──  1,000 failed\n", c.text(1000))
	for range chartWidth {
		sample(1, 0)
	}
	text := c.text(0)
	xdstest.Equal(t, "halved", "│▇▆ ████████████████████\n", text[strings.Index(text, "│"):strings.Index(text, "\n")+1])
	xdstest.Equal(t, "its steps", "└12─────────────────────", text[strings.Index(text, "└"):strings.Index(text, "  0 failed")])
}

// terminal draws in place.
type terminal struct {
	bytes.Buffer
	drawn []string
}

func (*terminal) Redraws() bool { return true }
func (d *terminal) Redraw(text string) error {
	d.drawn = append(d.drawn, text)
	return nil
}

// On a terminal a chart takes the place of the lines of progress; verdicts are as elsewhere.
func TestRunOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(terminal)
		err := performOn(t.Context(), t, out, func(f *fakeTraffic) []step { return []step{f.evenStep()} })
		xdstest.NoError(t, err)
		for _, want := range []string{"Step 1 of 1: one\n", "\nExpected (± is 5 standard deviations): a 50", "\nObserved: ", "\nAll 1 steps observed, in "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the output lacks %q:\n%s", want, out)
			}
		}
		if n := len(out.drawn); n != 12 || strings.Contains(out.String(), " s   a ") || !strings.Contains(out.drawn[n-1], "└1───────────  0 failed\n") {
			t.Errorf("%d charts, the last one\n%s\nand\n%s", n, out.drawn[n-1], out)
		}
	})
}

// With --page the chart is beside the status page, for the same hosts.
func TestChartOnThePage(t *testing.T) {
	t.Parallel()
	store := controlplane.NewStore()
	server := controlplane.NewServer(store, controlplane.Options{})
	defer server.Close()
	c := newChart([][2]string{{"a", "x"}})
	c.begin("Step 1 of 5: <split>")
	c.sample(map[string]int{"a": 1})
	page, err := servePage("127.0.0.1:0", server, store, c)
	xdstest.NoError(t, err)
	defer page.Close()
	body := cmdtest.Get(t, strings.TrimSuffix(page.URL, "/")+chartPath)
	for _, want := range []string{"<b>Step 1 of 5: &lt;split&gt;</b>", `<rect x="0.0" y="20.0" width="19.0" height="200.0" fill="#0072b2"/>`, ">step 1</text>", "a, cluster x: 100.0 %"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q: %s", want, body)
		}
	}
	if body := cmdtest.Get(t, page.URL); !strings.Contains(body, "<title>") {
		t.Errorf("there is no status page: %s", body)
	}
	if code, _ := cmdtest.GetAs(t, strings.TrimSuffix(page.URL, "/")+chartPath, "evil.example.com"); code != http.StatusForbidden {
		t.Errorf("another host gets %d", code)
	}
}
