package fault

import (
	"math"
	"time"

	commonpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/fraction"
	"github.com/dynxds/dynxds/internal/httpstatus"
)

// config is an HTTPFault. upstream_cluster, headers, downstream_nodes and everything about
// a runtime are ignored, as gRFC A33 says.
type config struct {
	delay *fault[time.Duration] // nil: none
	abort *fault[codes.Code]    // nil: none
	// maxActive bounds the faults of the process that are under way.
	maxActive int64
}

// fault is what happens to a share of RPCs: a delay, or an end with a code.
type fault[T any] struct {
	share fraction.Fraction
	value T
	// asked, if not nil, returns the value that the metadata of an RPC ask for in place of the configuration. header may lower the share.
	asked  func(metadata.MD) (T, bool)
	header string
}

func parse(pb *faultpb.HTTPFault, found *faults.Faults) httpfilter.Config {
	c := &config{maxActive: math.MaxInt64}
	if pb.GetMaxActiveFaults() != nil {
		c.maxActive = int64(pb.GetMaxActiveFaults().GetValue())
	}
	if pb.GetDelay() != nil {
		c.delay = parseDelay(faults.Field("delay"), pb.GetDelay(), found)
	}
	if pb.GetAbort() != nil {
		c.abort = parseAbort(faults.Field("abort"), pb.GetAbort(), found)
	}
	if pb.GetResponseRateLimit() != nil {
		found.Addf(faults.Field("response_rate_limit"), "this client does not limit the rate of responses (gRFC A33); take it out")
	}
	return c
}

func parseDelay(at *faults.Path, pb *commonpb.FaultDelay, found *faults.Faults) *fault[time.Duration] {
	d := &fault[time.Duration]{share: fraction.Read(at.Field("percentage"), pb.GetPercentage(), found), header: delayShareHeader}
	switch kind := pb.GetFaultDelaySecifier().(type) {
	case *commonpb.FaultDelay_FixedDelay:
		if err := kind.FixedDelay.CheckValid(); err != nil || kind.FixedDelay.AsDuration() < 0 {
			found.Addf(at.Field("fixed_delay"), "must be a duration of at least 0")
		}
		d.value = kind.FixedDelay.AsDuration()
	case *commonpb.FaultDelay_HeaderDelay_:
		d.asked = askedDelay
	default:
		found.Addf(at, "fixed_delay or header_delay must be set")
	}
	return d
}

func parseAbort(at *faults.Path, pb *faultpb.FaultAbort, found *faults.Faults) *fault[codes.Code] {
	a := &fault[codes.Code]{share: fraction.Read(at.Field("percentage"), pb.GetPercentage(), found), header: abortShareHeader}
	switch kind := pb.GetErrorType().(type) {
	case *faultpb.FaultAbort_HttpStatus:
		if !isHTTPStatus(uint64(kind.HttpStatus)) {
			found.Addf(at.Field("http_status"), "%d is not from 200 to 599", kind.HttpStatus)
		}
		a.value = httpstatus.Code(int(kind.HttpStatus))
	case *faultpb.FaultAbort_GrpcStatus:
		if !isGRPCStatus(uint64(kind.GrpcStatus)) {
			found.Addf(at.Field("grpc_status"), "%d is no status code of gRPC", kind.GrpcStatus)
		}
		a.value = codes.Code(kind.GrpcStatus)
	case *faultpb.FaultAbort_HeaderAbort_:
		a.asked = askedCode
	default:
		found.Addf(at, "http_status, grpc_status or header_abort must be set")
	}
	return a
}

func isHTTPStatus(n uint64) bool { return n >= 200 && n < 600 }

func isGRPCStatus(n uint64) bool { return n <= uint64(codes.Unauthenticated) }
