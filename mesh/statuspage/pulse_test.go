package statuspage

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
)

// silent is a channel whose balancer does not answer.
type silent struct{}

func (silent) Config() inspect.Config { return inspect.Config{Version: 1} }
func (silent) ClusterNames() []string { return []string{"c"} }

func (silent) Cluster(ctx context.Context, _ string) (inspect.Cluster, bool) {
	<-ctx.Done()
	return inspect.Cluster{}, false
}

// While a balancer does not answer, viewers are shown the last pulse at once, and the next one is made as soon as otherwise.
// Not in parallel: outcomes of the process are counted on virtual time.
func TestPulseOfASilentBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snap := &snapshot{channels: []inspect.Channel{inspect.Channel{Target: "xds:///silent"}.WithSource(silent{})}}
		const refresh = 2 * askingTime
		var p pulses
		first := p.get(t.Context(), new(snapshot), 0)
		time.Sleep(refresh)
		var second *pulse
		go func() { second = p.get(t.Context(), snap, refresh) }()
		synctest.Wait()
		if asked := time.Now(); second != nil || p.get(t.Context(), snap, refresh) != first || time.Since(asked) > 0 {
			t.Error("while the balancer is asked, a viewer is not shown the last pulse at once")
		}
		time.Sleep(askingTime)
		synctest.Wait()
		if second == nil || len(second.Channels) != 1 || p.get(t.Context(), snap, refresh) != second {
			t.Fatal("the balancer is asked for too long")
		}
		time.Sleep(askingTime)
		if p.get(t.Context(), new(snapshot), refresh) == second {
			t.Error("waiting for the balancer counts as work")
		}
		runtime.KeepAlive(first)
	})
}
