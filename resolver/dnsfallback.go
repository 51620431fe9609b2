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

// permits reports whether a policy lets DNS take the place of a control plane
// for which this is the answer to the channel's Listener. The control plane has
// to say that there is no such target, or, under "unavailable", to say nothing.
// One that refuses, or whose Listener does not validate, knows the target.
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
	case xdsclient.KindUnreachable, xdsclient.KindTimeout:
		return policy == bootstrap.DNSFallbackUnavailable
	default:
		return false
	}
}

// errCredentials is why DNS does not resolve the target of a channel that leaves the
// security of its connections to the control plane.
var errCredentials = errors.New("the channel's credentials, google.golang.org/grpc/credentials/xds, leave security to the control plane; " +
	"if DNS may resolve its target all the same, say so with dns_fallback in the bootstrap")

// publish hands a snapshot to the source of the channel's configuration that it
// is due to:
//
//   - a channel that is undecided becomes one of xDS when its Listener is
//     accepted, and one of DNS when the policy permits that instead;
//   - a channel of DNS becomes one of xDS when there is a whole configuration,
//     so that the move fails no RPC; anything less changes nothing;
//   - a channel of xDS stays one.
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
			return s.config.selector
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

// refused takes an answer of the control plane that is not a Listener, from a
// channel that never had one. gRPC is not given a service config for it: DNS
// would inherit that if it had none of its own.
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

// fallBack starts DNS. The graph goes on.
func (r *xdsResolver) fallBack(reason string) error {
	if err := r.dns.start(reason); err != nil {
		return err
	}
	r.graph.setPatient(true)
	return nil
}

// stay logs why a channel of DNS remains one.
func (r *xdsResolver) stay(err error) {
	if err == nil || err.Error() == r.stayed {
		return
	}
	r.stayed = err.Error()
	logger.Infof("%s: stays with DNS: %v", r.channel.ClientConn().Target(), err)
}
