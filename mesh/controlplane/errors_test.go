package controlplane_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// "TP3" in these comments is the file TP3-error-propagation; quotes are its.

// TP3, "Protocol Behavior": the status reaches the client as it is.
func TestErrors_StatusIsPassedOn(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	st, err := status.New(codes.PermissionDenied, "not yours").WithDetails(wrapperspb.String("ask the owner"))
	xdstest.NoError(t, err)
	s.update(t, func(tx *controlplane.Tx) { tx.SetError(rds, "r", st) })
	old, delta := s.open(t), s.openDelta(t)
	old.subscribe(rds, "r")
	delta.subscribe(rds, "r")
	for protocol, errs := range map[string][]*discoverypb.ResourceError{
		"SotW": old.next().errors, "delta": delta.next().errors,
	} {
		if len(errs) != 1 || errs[0].GetResourceName().GetName() != "r" || !proto.Equal(errs[0].GetErrorDetail(), st.Proto()) {
			t.Errorf("%s: %v", protocol, errs)
		}
	}
}
