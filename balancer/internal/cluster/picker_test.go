package cluster

import (
	"errors"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// gRFC A54: whatever the error of a leaf policy, the data plane sees UNAVAILABLE.
func TestPickerErrors(t *testing.T) {
	t.Parallel()
	const prefix = `dynxds: no endpoint of cluster "c" (ClusterLoadAssignment "e") can be reached: `
	for _, tc := range []struct {
		name     string
		err      error
		want     string
		isStatus bool
	}{
		{"waiting stays waiting", balancer.ErrNoSubConnAvailable, balancer.ErrNoSubConnAvailable.Error(), false},
		{"a plain error stays plain", errors.New("refused"), prefix + "refused", false},
		{"a status error keeps its text, not its code", status.Error(codes.Internal, "dropped"),
			"rpc error: code = Unavailable desc = " + prefix + "dropped", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			config := &Config{Cluster: &xdsresource.Cluster{Limits: xdsresource.Limits{MaxRequests: 1}}, Endpoints: &xdsresource.Endpoints{Name: "e"}}
			p := &picker{child: base.NewErrPicker(tc.err), gate: &gate{cluster: "c", config: config}}
			_, err := p.Pick(balancer.PickInfo{Ctx: t.Context()})
			if err.Error() != tc.want {
				t.Errorf("error is %q, want %q", err, tc.want)
			}
			if _, isStatus := status.FromError(err); isStatus != tc.isStatus {
				t.Errorf("status error: %v, want %v", isStatus, tc.isStatus)
			}
		})
	}
}
