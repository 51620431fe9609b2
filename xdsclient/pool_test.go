package xdsclient

import (
	"sync"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// One client per bootstrap in the process: channels share its streams.
func TestAcquireSharesByFingerprint(t *testing.T) {
	t.Parallel()
	ctx := testutils.Context(t)
	types := newTestTypes()
	server := xdstest.StartServer(t)
	server.Set(t, cluster("a", "1"))
	acquire := func(source, node string) (*XDSClient, func()) {
		cfg, err := bootstrap.Parse(source, server.Bootstrap(node))
		xdstest.NoError(t, err)
		c, release, err := Acquire(cfg)
		xdstest.NoError(t, err)
		return c, release
	}
	first, releaseFirst := acquire("one file", "acquire")
	second, releaseSecond := acquire("another file", "acquire")
	other, releaseOther := acquire("one file", "other node")
	defer releaseOther()
	if first != second {
		t.Error("equal bootstraps got different clients")
	}
	if first == other {
		t.Error("different bootstraps got the same client")
	}
	for _, c := range []*XDSClient{first, second} {
		e, _ := listen(t, c, types.clusters, "a")
		e.cluster("1")
	}
	xdstest.Equal(t, "streams opened", 1, server.Attempts())
	releaseFirst()
	releaseFirst()
	if first.ctx.Err() != nil {
		t.Fatal("the client was closed while it was held")
	}
	releaseSecond()
	if err := server.WaitOpen(ctx, 0); err != nil {
		t.Error(err)
	}
	first.running.Wait()
	third, releaseThird := acquire("one file", "acquire")
	defer releaseThird()
	if third == first {
		t.Error("a closed client was handed out")
	}
	e, _ := listen(t, third, types.clusters, "a")
	e.cluster("1")
	if third.Bootstrap().Source != "one file" {
		t.Error("Bootstrap is not that of the client")
	}
}

// Holders that come and go while the servers restart never get a client that is
// closed.
func TestAcquireAndReleaseAtOnce(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	high, low := xdstest.StartServer(t), xdstest.StartServer(t)
	for _, server := range []*xdstest.Server{high, low} {
		server.Set(t, cluster("a", "1"))
	}
	document := testutils.Bootstrap("at-once", high.Addr(), testutils.FurtherServer(low.Addr()))
	var holders sync.WaitGroup
	for range 8 {
		holders.Go(func() {
			for range 10 {
				cfg, err := bootstrap.Parse("test", document)
				if err != nil {
					t.Error(err)
					return
				}
				c, release, err := Acquire(cfg)
				if err != nil {
					t.Error(err)
					return
				}
				e, stop := listen(t, c, types.clusters, "a")
				select {
				case <-e.calls:
				case <-time.After(patience):
					t.Error("the watcher was not called")
				}
				stop()
				release()
			}
		})
	}
	for range 5 {
		if err := high.Restart(); err != nil {
			t.Error(err)
		}
	}
	holders.Wait()
	cfg, err := bootstrap.Parse("test", document)
	xdstest.NoError(t, err)
	if pool.Has(cfg.Fingerprint()) {
		t.Error("a client is left that nobody holds")
	}
}

func TestAcquireWithoutBootstrap(t *testing.T) {
	t.Parallel()
	if _, _, err := Acquire(nil); err == nil {
		t.Error("Acquire took no bootstrap")
	}
}

// oneLine is the error of a resource, as resource types have it.
type oneLine struct{ faults.Faults }

func (f *oneLine) Error() string { return f.Join("; ") }

// An error may be elsewhere than in the control plane, and says where. What each kind says is in transcripts.
func TestErrorText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ suggestion, want string }{
		{"", `a: wrong; b: missing; add it to the bootstrap (management server s, node id "n"); correct it in the control plane`},
		{"import it", `a: wrong; import it; b: missing; add it to the bootstrap (management server s, node id "n")`},
	} {
		found := &oneLine{faults.Faults{List: []faults.Fault{
			{Path: "a", Problem: "wrong", Suggestion: tc.suggestion}, {Path: "b", Problem: "missing", Suggestion: "add it to the bootstrap"},
		}}}
		e := &Error{Kind: KindInvalid, TypeName: "Cluster", Resource: "c", Server: "s", NodeID: "n", Err: found}
		xdstest.Equal(t, "text", `xDS Cluster "c" is invalid: `+tc.want, e.Error())
	}
}
