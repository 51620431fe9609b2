package resolver

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// permits reports whether a policy permits DNS after err in place of the channel's Listener:
// the control plane has said that it does not know the target; with "timeout", it does not answer for it;
// with "unavailable", it cannot be reached either. One that denies access, or whose Listener is invalid,
// knows the target.
func permits(policy bootstrap.DNSFallback, err error) bool {
	var e *xdsclient.Error
	if policy == bootstrap.DNSFallbackNever || !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case xdsclient.KindDoesNotExist:
		return true
	case xdsclient.KindServer:
		return e.Code == codes.NotFound
	case xdsclient.KindTimeout:
		return policy == bootstrap.DNSFallbackTimeout || policy == bootstrap.DNSFallbackUnavailable
	case xdsclient.KindUnreachable:
		return policy == bootstrap.DNSFallbackUnavailable
	default:
		return false
	}
}

// errCredentials is why DNS does not resolve the target of a channel that leaves the security
// of its connections to the control plane.
var errCredentials = errors.New("the channel's credentials, google.golang.org/grpc/credentials/xds, leave security to the control plane; " +
	"set dns_fallback in the bootstrap if DNS may resolve its target all the same")

// publish applies a snapshot according to the channel's mode:
//
//   - undecided becomes xDS when the Listener is accepted, or DNS if the policy permits it;
//   - DNS becomes xDS when there is a complete configuration, so that no RPC fails;
//   - xDS stays xDS.
func (r *xdsResolver) publish(s *snapshot) {
	switch r.record.Mode() {
	case channels.DNS:
		if s.config == nil {
			r.stay(s.err)
			return
		}
		r.connected = true // by DNS
		r.dns.handOver(fmt.Sprintf("the control plane has Listener %q", r.listener), func() grpcbridge.Runner {
			r.apply(s)
			return r.selector
		})
		r.graph.setPatient(false)
	case channels.Undecided:
		if s.accepted {
			r.record.SetMode(channels.XDS, fmt.Sprintf("the control plane has Listener %q", r.listener))
			r.apply(s)
			return
		}
		r.refused(s.err)
	default:
		r.apply(s)
	}
}

// refused handles an error in place of the first Listener. gRPC gets no service config for
// it: DNS would inherit that if it had none of its own.
func (r *xdsResolver) refused(err error) {
	if err == nil {
		return
	}
	if permits(r.policy, err) {
		startErr := errCredentials
		if !r.noDNS {
			startErr = r.fallBack(err.Error())
		}
		if startErr == nil {
			return
		}
		err = fmt.Errorf("%w; DNS cannot take its place: %w", err, startErr)
	}
	r.record.SetReason(err.Error())
	logger.Warningf("%s: no configuration: %v", r.channel.ClientConn().Target(), err)
	r.cc.ReportError(err)
	r.channel.Fail(err)
}

// fallBack starts DNS. The graph continues.
func (r *xdsResolver) fallBack(reason string) error {
	if err := r.dns.start(reason); err != nil {
		return err
	}
	r.graph.setPatient(true)
	return nil
}

// stay logs why a channel stays with DNS.
func (r *xdsResolver) stay(err error) {
	if err == nil || err.Error() == r.stayed {
		return
	}
	r.stayed = err.Error()
	logger.Infof("%s: stays with DNS: %v", r.channel.ClientConn().Target(), err)
}
