package cluster

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// picker is the priorities' picker with the cluster's name on its errors.
type picker struct {
	child     balancer.Picker
	cluster   string
	endpoints string
}

// Pick takes no lock and allocates only to word an error.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := p.child.Pick(info)
	if err == nil || err == balancer.ErrNoSubConnAvailable {
		return result, err
	}
	return result, p.explain(err)
}

// explain keeps the kind of error, as a status error ends even RPCs that wait
// for ready and others do not, but makes the code UNAVAILABLE: no
// configuration can make an RPC fail with another one (gRFC A54).
func (p *picker) explain(err error) error {
	text := err.Error()
	s, isStatus := status.FromError(err)
	if isStatus {
		text = s.Message()
	}
	text = fmt.Sprintf("dynxds: no endpoint of cluster %q (ClusterLoadAssignment %q) can be reached: %s",
		p.cluster, p.endpoints, text)
	if isStatus {
		return status.Error(codes.Unavailable, text)
	}
	return errors.New(text)
}
