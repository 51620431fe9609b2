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

// An RPC of any kind that fails is accounted for, with its status.
func TestEveryFailureCounts(t *testing.T) {
	t.Parallel()
	b := testutils.StartBackend(t, "only")
	l := Start(t, dial(t, b))
	l.WaitForBackends(t, "only")
	b.Fail(status.Error(codes.Aborted, "on purpose"))
	// Twice the number of kinds in a row cannot all be of other kinds.
	xdstest.NoError(t, b.Wait(testutils.Context(t), b.Count()+10*len(Kinds)))
	failures := l.finish()
	failed := map[string]bool{}
	for _, f := range failures {
		failed[f.kind] = true
		if !strings.Contains(f.err.Error(), "on purpose") {
			t.Errorf("failure %v, want the backend's error", f)
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
			failures := l.finish()
			failed := slices.ContainsFunc(failures, func(f failure) bool { return f.kind == longLived })
			if failed != test.fails {
				t.Errorf("it failed: %v, want %v; all failures: %v", failed, test.fails, failures)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	// rounds are RPCs of each kind: "a" for one that a answers.
	for _, test := range []struct {
		name, rounds string
		ids          []string
		want         bool
	}{
		{"enough of each kind", strings.Repeat("a", streak), []string{"a"}, true},
		{"one short", strings.Repeat("a", streak-1), []string{"a"}, false},
		{"interrupted by another", strings.Repeat("a", streak-1) + "b" + strings.Repeat("a", streak-1), []string{"a"}, false},
		{"after another", "bbbbb" + strings.Repeat("a", streak), []string{"a"}, true},
		{"one of two silent", strings.Repeat("a", streak), []string{"a", "b"}, false},
		{"both of two", strings.Repeat("a", streak) + "b", []string{"a", "b"}, true},
	} {
		got := answers{}
		for _, id := range test.rounds {
			for _, kind := range Kinds {
				got.add(kind.Name, string(id))
			}
		}
		if got.areOf(test.ids) != test.want {
			t.Errorf("%s: %t, want %t", test.name, !test.want, test.want)
		}
	}
	oneKind := answers{}
	for range 10 * streak {
		oneKind.add("unary", "a")
	}
	if oneKind.areOf([]string{"a"}) {
		t.Error("RPCs of one kind suffice, want all kinds")
	}
}
