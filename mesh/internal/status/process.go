package status

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/tlsfiles"
)

// Process is a process to ask, and how, by the flags of the command.
type Process struct {
	// Address is a gRPC target.
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
func (p *Process) connect(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds, err := p.credentials()
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if p.ServerName != "" {
		opts = append(opts, grpc.WithAuthority(p.ServerName))
	}
	cc, err := grpc.NewClient(p.Address, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		return nil, exit.Usagef("cannot ask %q: %w", p.Address, err)
	}
	return cc, nil
}

func (p *Process) credentials() (credentials.TransportCredentials, error) {
	if !p.secure() {
		return insecure.NewCredentials(), nil
	}
	config, err := tlsfiles.Client("--", p.CA, p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	config.InsecureSkipVerify = p.Insecure
	return credentials.NewTLS(config), nil
}

// hint says what may be wrong with how it was asked.
func (p *Process) hint() string {
	if p.secure() {
		return "is it the address of a gRPC server with TLS? --ca and --server-name say whom to trust"
	}
	return "is it the address of a gRPC server without TLS? --tls and --ca are for one with TLS"
}
