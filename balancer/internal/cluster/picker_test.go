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

// The data plane sees codes of a leaf policy that are not for servers only (gRFC A54), or UNAVAILABLE.
func TestPickerErrors(t *testing.T) {
	t.Parallel()
	const prefix, dropped = `dynxds: no endpoint of cluster "c" (ClusterLoadAssignment "e") can be reached: `, `dynxds: RPC to cluster "c" dropped by its load-balancing policy: `
	for _, tc := range []struct {
		name     string
		err      error
		want     string
		isStatus bool
	}{
		{"waiting stays waiting", balancer.ErrNoSubConnAvailable, balancer.ErrNoSubConnAvailable.Error(), false},
		{"a plain error stays plain", errors.New("refused"), prefix + "refused", false},
		{"a status error keeps its code", status.Error(codes.ResourceExhausted, "full"), "rpc error: code = ResourceExhausted desc = " + dropped + "full", true},
		{"a status error loses a code of servers", status.Error(codes.NotFound, "none"), "rpc error: code = Unavailable desc = " + dropped + "none", true},
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
