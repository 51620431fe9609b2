package xdsclient

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// defaultResourceTimeout is how long a server has to send a resource
	// (Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist").
	defaultResourceTimeout = 15 * time.Second
	// defaultMaxMembers bounds a collection.
	defaultMaxMembers = 1 << 20
)

// Options configure a client that New makes. The zero value has the defaults.
type Options struct {
	// Backoff is how long the client waits between two attempts to open a stream, and between two attempts to connect. The
	// default is gRPC's, with a lower limit: 1 s, growing by 1.6 to 30 s, each ±20 %.
	Backoff backoff.Config
	// ResourceTimeout is how long a server has to send a resource that was asked for. The default is 15 s. A server with the
	// feature resource_timer_is_transient_error has twice as long (gRFC A88).
	ResourceTimeout time.Duration
	// Dial are for the connections to the management servers, for example a dialer. They come after, and so win over, the client's
	// own. A response may have 64 MiB; grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(n)) changes that. A larger
	// one ends the stream.
	Dial []grpc.DialOption
}

// defaultBackoff is gRPC's, but for its limit of 120 s: a control plane that is back is to be noticed sooner.
var defaultBackoff = backoff.Config{
	BaseDelay: backoff.DefaultConfig.BaseDelay, Multiplier: backoff.DefaultConfig.Multiplier, Jitter: backoff.DefaultConfig.Jitter,
	MaxDelay: 30 * time.Second,
}

// complete puts in the defaults, and reports what is wrong.
func (o *Options) complete() error {
	var errs []error
	if b := o.Backoff; b == (backoff.Config{}) {
		o.Backoff = defaultBackoff
	} else if b.BaseDelay <= 0 || b.MaxDelay < b.BaseDelay || b.Multiplier < 1 || b.Jitter < 0 || b.Jitter >= 1 {
		errs = append(errs, fmt.Errorf("field Backoff is %+v: expected 0 < BaseDelay <= MaxDelay, Multiplier >= 1, 0 <= Jitter < 1", b))
	}
	if o.ResourceTimeout < 0 {
		errs = append(errs, fmt.Errorf("field ResourceTimeout is %v: expected a positive duration", o.ResourceTimeout))
	}
	o.ResourceTimeout = cmp.Or(o.ResourceTimeout, defaultResourceTimeout)
	return errors.Join(errs...)
}
