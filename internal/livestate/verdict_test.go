package livestate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// The lines of testdata/verdicts.txt have how many channels, clusters by their health and servers there are and how they are, the RPCs, and
// how many seconds ago the last change was; the verdict is behind them.
func TestVerdicts(t *testing.T) {
	golden.Scripts(t, "testdata/verdicts.txt", 100, func(t testing.TB) func(string) string {
		return func(line string) string {
			now := time.Now()
			g := &gathering{State: &State{Time: now}}
			for _, word := range strings.Fields(line) {
				key, text, _ := strings.Cut(word, "=")
				n, err := strconv.Atoi(text)
				xdstest.NoError(t, err)
				count := map[string]*uint64{"started": &g.rpcs.Started, "ended": &g.rpcs.Ended, "failed": &g.rpcs.Failed}[key]
				switch {
				case count != nil:
					*count = uint64(n)
				case key == "seconds":
					g.rpcs.Seconds = min(n, outcomes.Seconds)
				case key == "faults":
					g.faults = n
				case key == "changed":
					g.recent = []changes.Change{{Time: now.Add(-time.Duration(n) * time.Second)}}
				default:
					for range n {
						g.add(t, key)
					}
				}
			}
			return g.verdict().Text
		}
	})
}

// add adds something of a kind.
func (g *gathering) add(t testing.TB, kind string) {
	switch dns := string(channels.DNS); kind {
	case "channels":
		g.Channels = append(g.Channels, Channel{Health: Healthy})
	case "unconfigured":
		g.Channels = append(g.Channels, Channel{Health: Failing})
	case "dns":
		g.Channels = append(g.Channels, Channel{Mode: dns, Health: Unknown})
	case "bypassing":
		g.Channels = append(g.Channels, Channel{Mode: dns, Health: Degraded})
	case "connected":
		g.Servers = append(g.Servers, Server{Connected: true})
	case "starting":
		g.Servers = append(g.Servers, Server{})
	case "lost":
		g.Servers = append(g.Servers, Server{Error: "refused"})
	case "behind":
		g.Servers = append(g.Servers, Server{Connected: true, BehindSince: g.Time.Add(-22 * time.Second)})
	case "ending":
		g.Problems = append(g.Problems, Problem{Kind: "certificate"})
	case string(Failing), string(Degraded), string(Unknown), string(Healthy), string(Idle):
		g.Clusters = append(g.Clusters, &Cluster{Health: Health(kind)})
	default:
		t.Fatalf("there is no %q", kind)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for share, want := range map[float64]string{0: "0 %", 1: "100 %", 0.0001: "under 0.1 %", 0.9999: "over 99.9 %", 0.021: "2.1 %"} {
		xdstest.Equal(t, fmt.Sprint(share), want, Percent(share))
	}
	for d, want := range map[time.Duration]string{-time.Hour: "0 s", 119 * time.Second: "119 s", 2 * time.Minute: "2 min", 47 * time.Hour: "47 h", 72 * time.Hour: "3 days"} {
		xdstest.Equal(t, d.String(), want, Ago(d))
	}
}
