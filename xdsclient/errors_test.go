package xdsclient

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// An error says which resource, which server and which node,
// and the way out.
func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := errors.New("the reason")
	for _, tc := range []struct {
		kind ErrorKind
		want string
	}{
		{KindDoesNotExist, `xDS Cluster "c": the reason (management server s, node id "n"); check that the control plane has it for this node`},
		{KindInvalid, `xDS Cluster "c" is invalid: the reason (management server s, node id "n"); correct it in the control plane`},
		{KindServer, `xDS Cluster "c": error PermissionDenied from the management server: the reason (management server s, node id "n"); the control plane knows why`},
		{KindUnreachable, `xDS Cluster "c": the management server is unreachable: the reason (management server s, node id "n"); check that the server runs, and server_uri and channel_creds in the xDS bootstrap`},
		{KindTimeout, `xDS Cluster "c": the reason (management server s, node id "n"); check that the control plane is not overloaded`},
		{KindConfiguration, `xDS Cluster "c": the reason (management server s, node id "n"); check the xDS bootstrap`},
		{"", `xDS Cluster "c": the reason (management server s, node id "n"); check the xDS bootstrap`},
	} {
		e := &Error{Kind: tc.kind, Code: codes.PermissionDenied, TypeName: "Cluster", Resource: "c", Server: "s", NodeID: "n", Err: cause}
		if e.Error() != tc.want {
			t.Errorf("%v reads\n%s\nwant\n%s", tc.kind, e, tc.want)
		}
		if !errors.Is(e, cause) {
			t.Errorf("%v hides its reason", tc.kind)
		}
	}
	e := &Error{Kind: KindConfiguration, TypeName: "Cluster", Resource: "c", Err: cause}
	if strings.Contains(e.Error(), "management server") {
		t.Errorf("%q names a server although none was asked", e)
	}
}
