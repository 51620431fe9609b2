package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdstest"
)

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
