package load

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, b *testutils.Backend) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+b.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

func TestEveryKindRuns(t *testing.T) {
	t.Parallel()
	l := Start(t, dial(t, testutils.StartBackend(t, "only")))
	l.WaitForBackends(t, "only")
	failures, done := l.finish()
	if len(failures) > 0 {
		t.Errorf("failures: %v", failures)
	}
	for _, kind := range Kinds {
		if n := done[kind.Name]; n < streak {
			t.Errorf("%d %s RPCs succeeded, want %d at least", n, kind.Name, streak)
		}
	}
}

// An RPC of any kind that fails is accounted for, with its status.
func TestEveryFailureCounts(t *testing.T) {
	t.Parallel()
	b := testutils.StartBackend(t, "only")
	l := Start(t, dial(t, b))
	l.WaitForBackends(t, "only")
	b.Fail(status.Error(codes.Aborted, "on purpose"))
	// Twice the number of kinds in a row cannot all be of other kinds.
	xdstest.NoError(t, b.Wait(testutils.Context(t), b.Count()+10*len(Kinds)))
	failures, _ := l.finish()
	failed := map[string]bool{}
	for _, f := range failures {
		failed[f.Kind] = true
		if !strings.Contains(f.Err.Error(), "on purpose") || f.Began.IsZero() {
			t.Errorf("failure %+v, want the backend's error and a time", f)
		}
	}
	for _, kind := range Kinds {
		if !failed[kind.Name] {
			t.Errorf("no failure of a %s RPC was counted", kind.Name)
		}
	}
}

// A stream that lives as long as the load counts as failed if its backend goes, and only then.
func TestHeldStream(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		after func(*testutils.Backend)
		fails bool
	}{
		{"that is left alone", func(*testutils.Backend) {}, false},
		{"whose backend goes", (*testutils.Backend).Stop, true},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			b := testutils.StartBackend(t, "only")
			l := Start(t, dial(t, b))
			l.HoldStream(t, dial(t, b))
			l.WaitForBackends(t, "only")
			test.after(b)
			failures, _ := l.finish()
			failed := slices.ContainsFunc(failures, func(f Failure) bool { return f.Kind == longLived })
			if failed != test.fails {
				t.Errorf("it failed: %v, want %v; all failures: %v", failed, test.fails, failures)
			}
		})
	}
}

func TestExpectation(t *testing.T) {
	t.Parallel()
	row := func(backend string, n int) func(*expectation) {
		return func(x *expectation) {
			for range n {
				for _, kind := range Kinds {
					x.observe(kind.Name, backend)
				}
			}
		}
	}
	for _, test := range []struct {
		name string
		ids  []string
		seen []func(*expectation)
		met  bool
	}{
		{"enough of each kind", []string{"a"}, []func(*expectation){row("a", streak)}, true},
		{"one short", []string{"a"}, []func(*expectation){row("a", streak-1)}, false},
		{"interrupted by another", []string{"a"}, []func(*expectation){row("a", streak-1), row("b", 1), row("a", streak-1)}, false},
		{"after another", []string{"a"}, []func(*expectation){row("b", 5), row("a", streak)}, true},
		{"one of two silent", []string{"a", "b"}, []func(*expectation){row("a", streak)}, false},
		{"both of two", []string{"a", "b"}, []func(*expectation){row("a", streak), row("b", 1)}, true},
		{"one kind only", []string{"a"}, []func(*expectation){func(x *expectation) {
			for range 10 * streak {
				x.observe("unary", "a")
			}
		}}, false},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			x := newExpectation(test.ids)
			for _, f := range test.seen {
				f(x)
			}
			select {
			case <-x.met:
				if !test.met {
					t.Error("met")
				}
			default:
				if test.met {
					t.Errorf("not met: %s", x)
				}
			}
		})
	}
}
