package status

import (
	"context"
	"fmt"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/exit"
)

// maxAnswer bounds the response, in bytes: it has every resource of the process.
const maxAnswer = 256 << 20

// fetch asks a process for its xDS clients, until the deadline of the context, which is that of the flag
// --timeout. The error names the process.
func (p *Process) fetch(ctx context.Context) (clients []*client, err error) {
	cc, err := p.connect(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	// gRPC has this method of the two in every language.
	answer, err := statuspb.NewClientStatusDiscoveryServiceClient(cc).FetchClientStatus(ctx, new(statuspb.ClientStatusRequest))
	if err != nil {
		return nil, exit.With(exit.Unreachable, p.refusal(err))
	}
	for _, config := range answer.GetConfig() {
		clients = append(clients, clientOf(p.Address, config))
	}
	return clients, nil
}

// refusal is the error of a process that gave no answer.
func (p *Process) refusal(err error) error {
	said := bounds.Text(err.Error(), bounds.ErrorText)
	switch grpcstatus.Code(err) {
	case codes.Unimplemented:
		return fmt.Errorf("%s has no Client Status Discovery Service to ask: %s; does the process call csds.Register?", p.Address, said)
	case codes.Unavailable:
		return fmt.Errorf("cannot reach %s: %s; %s", p.Address, said, p.hint())
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s did not answer in time: %s; %s; --timeout allows more time", p.Address, said, p.hint())
	default:
		return fmt.Errorf("%s does not report the state of its xDS clients: %s", p.Address, said)
	}
}
