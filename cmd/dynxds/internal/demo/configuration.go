package demo

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/testutils"
)

// configurationHeader is the response header with the number of the
// configuration that routed the RPC.
const configurationHeader = "demo-configuration"

// maxStreamDuration is what stands for configuration n. It lies in the middle
// of an hour of its own, which neither rounding on the wire nor an RPC that
// waits for a connection can leave.
func maxStreamDuration(n int) time.Duration {
	return time.Duration(n)*time.Hour - 30*time.Minute
}

// configurationOf is the inverse: the number for what is left of the duration
// when the RPC arrives.
func configurationOf(left time.Duration) int { return int(left/time.Hour) + 1 }

// stampConfiguration is the behaviour of every backend.
func stampConfiguration(ctx context.Context, rpc testutils.RPC) error {
	if rpc.Deadline.IsZero() {
		return nil
	}
	n := configurationOf(time.Until(rpc.Deadline))
	return grpc.SetHeader(ctx, metadata.Pairs(configurationHeader, strconv.Itoa(n)))
}

// answeredBy reads who answered, and which configuration routed the RPC, from
// the response's header.
func answeredBy(header metadata.MD) (backend string, configuration int) {
	if v := header.Get(testutils.BackendIDHeader); len(v) > 0 {
		backend = v[0]
	}
	if v := header.Get(configurationHeader); len(v) > 0 {
		// What is no number counts as not known.
		configuration, _ = strconv.Atoi(v[0])
	}
	return backend, configuration
}
