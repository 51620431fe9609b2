package decision_test

import (
	"context"
	"testing"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// rpc is an RPC whose hash is computed by a test.
type rpc struct {
	hash  uint64
	ok    bool
	calls int
}

func (r *rpc) Origin() (context.Context, string, string) { return context.Background(), "", "" }

func (r *rpc) Hash() (uint64, bool) {
	r.calls++
	return r.hash, r.ok
}

func TestHash(t *testing.T) {
	t.Parallel()
	given := &rpc{hash: 7, ok: true}
	d := &decision.Decision{Context: t.Context(), Extra: &decision.Extra{RPC: given}}
	for i, one := range []*decision.Decision{d, d, d.ForAttempt()} {
		if got := one.Hash(); got != 7 || given.calls != 1 {
			t.Errorf("call %d: hash %d, computed %d times", i, got, given.calls)
		}
	}
	for name, of := range map[string]func() *decision.Decision{
		"no policy gives one": func() *decision.Decision {
			return &decision.Decision{Context: t.Context(), Extra: &decision.Extra{RPC: new(rpc)}}
		},
		"no policy": func() *decision.Decision { return &decision.Decision{Context: t.Context()} },
	} {
		one := of()
		first, again, other := one.Hash(), one.Hash(), of().Hash()
		if first != again || first == other {
			t.Errorf("%s: one RPC has hashes %d and %d, another one %d", name, first, again, other)
		}
	}
}

func TestARandomHashAllocatesNothing(t *testing.T) {
	d := make([]decision.Decision, 1001)
	if got := testing.AllocsPerRun(1000, func() { d[0].Hash(); d = d[1:] }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// TestAuthorityFor: gRFC A81, "xds_cluster_impl LB Policy Changes".
func TestAuthorityFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		extra    *decision.Extra
		hostname string
		want     string
	}{
		{"not asked for", nil, "endpoint", ""},
		{"not asked for, other things are", new(decision.Extra), "endpoint", ""},
		{"hostname", &decision.Extra{AutoHost: true, Authority: "route"}, "endpoint", "endpoint"},
		{"no hostname", &decision.Extra{AutoHost: true, Authority: "route"}, "", "route"},
		{"nothing at all", &decision.Extra{AutoHost: true}, "", ""},
	} {
		d := &decision.Decision{Context: t.Context(), Extra: test.extra}
		if got := d.AuthorityFor(test.hostname); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	plain := &decision.Decision{Context: t.Context()}
	plain.Fail(rpctrace.Dropped) // It has no effect.
	(*decision.Decision)(nil).Fail(rpctrace.Dropped)
	d := &decision.Decision{Context: t.Context(), Extra: new(decision.Extra)}
	if d.Dropped() || plain.Dropped() || d.Failure() != rpctrace.Found || plain.Failure() != rpctrace.Found {
		t.Error("failed from the start")
	}
	for reason, dropped := range map[rpctrace.Reason]bool{
		rpctrace.Unusable: false, rpctrace.Unreachable: false, rpctrace.Dropped: true, rpctrace.MaxRequests: true,
	} {
		if d.Fail(reason); d.Failure() != reason || d.Dropped() != dropped {
			t.Errorf("after %q: %q, dropped %v", reason, d.Failure(), d.Dropped())
		}
	}
}

func TestADecisionIsFoundInContextsDerivedFromIt(t *testing.T) {
	t.Parallel()
	type key struct{}
	d := &decision.Decision{Context: context.WithValue(t.Context(), key{}, "v"), Method: "/s/m"}
	ctx, cancel := context.WithCancel(d)
	defer cancel()
	if decision.FromContext(ctx) != d || ctx.Value(key{}) != "v" || decision.FromContext(t.Context()) != nil {
		t.Error("the Decision or the application's value is lost")
	}
	if d.WireMethod() != "/s/m" {
		t.Errorf("WireMethod %q", d.WireMethod())
	}
	d.Extra = &decision.Extra{WireMethod: "/t/n"}
	if d.WireMethod() != "/t/n" {
		t.Errorf("WireMethod after a rewrite %q", d.WireMethod())
	}
}

// TestHostOfAttempts: the endpoint of an RPC is that of the attempt that wins, whenever the others
// are picked for.
func TestHostOfAttempts(t *testing.T) {
	t.Parallel()
	override := new(httpfilter.HostOverride)
	d := &decision.Decision{Context: t.Context(), Extra: &decision.Extra{HostOverride: override}}
	first, second, late := d.ForAttempt(), d.ForAttempt(), d.ForAttempt()
	hosts := []string{"first", "second", "late", "plain"}
	expect := func(when, want string) {
		t.Helper()
		if got := override.Host(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	first.SetHost(&hosts[0])
	second.SetHost(&hosts[1])
	expect("before one has won", "")
	first.Won()
	second.SetHost(&hosts[1])
	expect("the first has won", "first")
	late.Won()
	late.SetHost(&hosts[2])
	expect("one has won before it was picked for", "late")
	d.SetHost(&hosts[3])
	d.Won()
	expect("no attempt of its own", "plain")
	if first.Fail(rpctrace.MaxRetries); d.Dropped() || second.Dropped() || !first.Dropped() {
		t.Error("the failure of one attempt is that of others")
	}
}

// The metadata for filters are those of the cluster that was picked last, and each attempt has its own: it may have been
// routed elsewhere. Without any, nothing is kept.
func TestMetadataOfThePickedCluster(t *testing.T) {
	t.Parallel()
	d := &decision.Decision{Context: t.Context(), Extra: new(decision.Extra)}
	attempt := d.ForAttempt()
	seen := func(d *decision.Decision) string {
		ctx, cancel := context.WithCancel(d)
		defer cancel()
		value, _ := httpfilter.PickedMetadata(ctx).Get("key")
		text, _ := value.(string)
		return text
	}
	pick := func(d *decision.Decision, value string) {
		d.SetMetadata(&httpfilter.Metadata{{Key: "key", Value: value}})
	}
	expect := func(want ...string) {
		t.Helper()
		for i, one := range []*decision.Decision{d, attempt, {Context: t.Context()}} {
			if got := seen(one); got != want[i] {
				t.Errorf("Decision %d: %q, want %q", i, got, want[i])
			}
		}
	}
	expect("", "", "")
	pick(d, "first")
	expect("first", "", "")
	pick(attempt, "elsewhere")
	pick(d, "second")
	expect("second", "elsewhere", "")
	d.SetMetadata(new(httpfilter.Metadata))
	expect("", "elsewhere", "")
}
