package statuspage

import (
	"context"
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

// A balancer that does not answer is waited for a while, which is no work: the next snapshot is taken as soon as otherwise.
// Not in parallel: outcomes of the process are counted on virtual time.
func TestPulseOfASilentBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snap := &snapshot{channels: []inspect.Channel{inspect.Channel{Target: "xds:///silent"}.WithSource(silent{})}}
		began := time.Now()
		if p, waited := snap.takePulse(); len(p.Channels) != 1 || time.Since(began) != askingTime || waited != askingTime {
			t.Errorf("%d channels after %v, of which %v are for waiting", len(p.Channels), time.Since(began), waited)
		}
	})
}
