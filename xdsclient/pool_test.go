package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// One client per bootstrap in the process: channels share its streams.
func TestAcquireSharesByFingerprint(t *testing.T) {
	t.Parallel()
	acquire := func(source, node string) (*XDSClient, func()) {
		cfg, err := bootstrap.Parse(source, testutils.Bootstrap(node, "passthrough:///nowhere"))
		xdstest.NoError(t, err)
		c, release, err := Acquire(cfg)
		xdstest.NoError(t, err)
		return c, release
	}
	first, releaseFirst := acquire("one file", "acquire")
	second, releaseSecond := acquire("another file", "acquire")
	other, releaseOther := acquire("one file", "other node")
	defer releaseOther()
	if first != second || first == other {
		t.Error("clients are not those of their bootstraps")
	}
	releaseFirst()
	if first.ctx.Err() != nil {
		t.Error("the client was closed while it was held")
	}
	releaseSecond()
	first.running.Wait()
	third, releaseThird := acquire("yet another file", "acquire")
	defer releaseThird()
	if third == first || third.Bootstrap().Source != "yet another file" {
		t.Error("a closed client was handed out")
	}
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
