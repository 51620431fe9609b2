package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/tlsadvice"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/explain"
)

const (
	// stepTimeout bounds the wait for one host.
	stepTimeout = 5 * time.Second
	// maxProbed bounds the endpoints of a cluster that are tried, and maxAtOnce how many are at a time.
	maxProbed, maxAtOnce = 50, 16
	// maxLines bounds the endpoints of a cluster that have a line of their own.
	maxLines = 10
)

// endpoints connects to the endpoints of a cluster, as its Cluster asks for, and asks for their health.
func (r *Report) endpoints(ctx context.Context, c *explain.Cluster, value *xdsresource.Cluster) {
	if value.HTTPConnect {
		r.warn("", "endpoints", c.Name, "they are behind HTTP proxies, so that they were not tried")
		return
	}
	pool := clustertls.NewPool(true, insecure.NewCredentials(), nil)
	bundle, release := pool.Acquire(c.Name, value)
	defer release()
	list := slices.DeleteFunc(c.Assignment.Endpoints(), func(e *inspect.Endpoint) bool { return !e.Usable() })
	texts, errs := make([]string, min(len(list), maxProbed)), make([]error, min(len(list), maxProbed))
	turns := make(chan struct{}, maxAtOnce)
	var probing sync.WaitGroup
	for i := range texts {
		probing.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			texts[i], errs[i] = probe(ctx, bundle.Address(list[i].Addresses[0], list[i].Hostname, ""), bundle, value.Security != nil)
		})
	}
	probing.Wait()
	failed := 0
	for i, err := range errs {
		switch address := list[i].Addresses[0]; {
		case err != nil:
			if failed++; failed <= maxLines {
				r.fail(endpoints.about(err.Error()), "endpoint", address, "%v", err)
			}
		case len(errs) <= maxLines:
			r.ok("endpoint", address, "%s", texts[i])
		}
	}
	if len(errs) > maxLines {
		left := ""
		if more := len(list) - len(errs); more > 0 {
			left = fmt.Sprintf(", %d more were not tried", more)
		}
		r.ok("endpoints", c.Name, "%d of %d answer%s", len(errs)-failed, len(errs), left)
	}
}

// probe connects to an address, and returns what its health service says of the server. The error is why it cannot be used.
func probe(ctx context.Context, address resolver.Address, bundle *clustertls.Bundle, secure bool) (string, error) {
	r := manual.NewBuilderWithScheme("dynxds-doctor")
	r.InitialState(resolver.State{Endpoints: []resolver.Endpoint{{Addresses: []resolver.Address{address}}}})
	cc, err := grpc.NewClient(r.Scheme()+":///endpoint", grpc.WithResolvers(r), grpc.WithAuthority(address.Addr), grpc.WithCredentialsBundle(bundle))
	if err != nil {
		return "", err
	}
	defer cc.Close()
	how := "plaintext"
	if secure {
		how = "TLS"
	}
	health, err := ask(ctx, cc)
	if health == "NOT_SERVING" {
		err = errors.New("connected, " + how + "; its health service says NOT_SERVING")
	}
	return "connected, " + how + health, err
}

// ask connects a channel, and returns what its server's health service says. The error is why it cannot be connected.
func ask(ctx context.Context, cc *grpc.ClientConn) (health string, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(cc).Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	switch code := status.Code(err); {
	case err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_NOT_SERVING:
		return "NOT_SERVING", nil
	case err == nil:
		return ", " + answer.GetStatus().String(), nil
	case code == codes.Unimplemented:
		return ", no health service", nil
	case code == codes.Unavailable && cc.GetState() != connectivity.Ready, code == codes.DeadlineExceeded:
		text := status.Convert(err).Message()
		if _, last, found := strings.Cut(text, "last connection error: "); found {
			text = last
		}
		return "", errors.New(tlsadvice.Reason(text))
	default:
		return fmt.Sprintf(", health check: %v", code), nil
	}
}
