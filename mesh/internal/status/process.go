package status

import (
	"context"
	"fmt"
	"net"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/tlsfiles"
)

// Process is a process to ask, and how, by the flags of the command.
type Process struct {
	// Address is HOST:PORT, or unix:PATH.
	Address string
	// TLS asks for TLS, as each of the fields below does.
	TLS bool
	// CA is a PEM file with the authorities of its certificate; without one they are the system's.
	CA string
	// Cert and Key are PEM files with the certificate to present, and its key.
	Cert, Key string
	// ServerName is the authority of the RPC, and the name in the certificate, in place of the address.
	ServerName string
	// Insecure accepts any certificate.
	Insecure bool
}

// secure reports whether to use TLS.
func (p *Process) secure() bool {
	return p.TLS || p.CA != "" || p.Cert != "" || p.Key != "" || p.ServerName != "" || p.Insecure
}

// connect returns a channel to the process.
func (p *Process) connect() (*grpc.ClientConn, error) {
	if _, port, err := net.SplitHostPort(p.Address); err != nil || port == "" {
		return nil, exit.Usagef("%q is not the address of a process: want HOST:PORT", p.Address)
	}
	creds := insecure.NewCredentials()
	if p.secure() {
		config, err := tlsfiles.Client("--", p.CA, p.Cert, p.Key)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		config.InsecureSkipVerify = p.Insecure
		creds = credentials.NewTLS(config)
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer))}
	if p.ServerName != "" {
		opts = append(opts, grpc.WithAuthority(p.ServerName))
	}
	cc, err := grpc.NewClient(p.Address, opts...)
	if err != nil {
		return nil, exit.Usagef("cannot ask %q: %w", p.Address, err)
	}
	return cc, nil
}

// hint says what may be wrong with how it was asked.
func (p *Process) hint() string {
	if p.secure() {
		return "is it the address of a gRPC server with TLS? --ca and --server-name say whom to trust"
	}
	return "is it the address of a gRPC server without TLS? --tls and --ca are for one with TLS"
}

// maxAnswer bounds the response, in bytes: it has every resource of the process.
const maxAnswer = 256 << 20

// fetch asks a process for its xDS clients, until the deadline of the context, which is that of the flag
// --timeout. The error names the process.
func (p *Process) fetch(ctx context.Context) (clients []*client, err error) {
	cc, err := p.connect()
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
