package fault

import (
	"errors"
	"fmt"
	"math"
	"time"

	commonpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/fraction"
	"github.com/dynxds/dynxds/internal/httpstatus"
)

// config is an HTTPFault. upstream_cluster, headers, downstream_nodes and everything about
// a runtime are ignored, as gRFC A33 says.
type config struct {
	delay *delay // nil: none
	abort *abort // nil: none
	// maxActive bounds the faults of the process that are under way.
	maxActive int64
}

type delay struct {
	share  fraction.Fraction
	fixed  time.Duration
	header bool // the RPC's metadata sets the duration
}

type abort struct {
	share  fraction.Fraction
	code   codes.Code
	header bool // the RPC's metadata sets the code
}

func (filter) ParseConfig(a *anypb.Any) (httpfilter.Config, error) { return parse(a) }

func (filter) ParseOverride(a *anypb.Any) (httpfilter.Config, error) { return parse(a) }

func parse(a *anypb.Any) (httpfilter.Config, error) {
	pb := new(faultpb.HTTPFault)
	if err := httpfilter.UnmarshalConfig(a, pb); err != nil {
		return nil, err
	}
	c := &config{maxActive: math.MaxInt64}
	if pb.GetMaxActiveFaults() != nil {
		c.maxActive = int64(pb.GetMaxActiveFaults().GetValue())
	}
	var delayErr, abortErr, limitErr error
	if pb.GetDelay() != nil {
		c.delay, delayErr = parseDelay(pb.GetDelay())
	}
	if pb.GetAbort() != nil {
		c.abort, abortErr = parseAbort(pb.GetAbort())
	}
	if pb.GetResponseRateLimit() != nil {
		limitErr = fmt.Errorf("response_rate_limit: this client does not limit the rate of responses (gRFC A33); take it out")
	}
	if err := errors.Join(delayErr, abortErr, limitErr); err != nil {
		return nil, err
	}
	return c, nil
}

func parseDelay(pb *commonpb.FaultDelay) (*delay, error) {
	share, err := fraction.Parse(pb.GetPercentage())
	if err != nil {
		return nil, fmt.Errorf("delay.percentage.%w", err)
	}
	d := &delay{share: share}
	switch kind := pb.GetFaultDelaySecifier().(type) {
	case *commonpb.FaultDelay_FixedDelay:
		if err := kind.FixedDelay.CheckValid(); err != nil || kind.FixedDelay.AsDuration() < 0 {
			return nil, fmt.Errorf("delay.fixed_delay: must be a duration of at least 0")
		}
		d.fixed = kind.FixedDelay.AsDuration()
	case *commonpb.FaultDelay_HeaderDelay_:
		d.header = true
	default:
		return nil, fmt.Errorf("delay: fixed_delay or header_delay must be set")
	}
	return d, nil
}

func parseAbort(pb *faultpb.FaultAbort) (*abort, error) {
	share, err := fraction.Parse(pb.GetPercentage())
	if err != nil {
		return nil, fmt.Errorf("abort.percentage.%w", err)
	}
	a := &abort{share: share}
	switch kind := pb.GetErrorType().(type) {
	case *faultpb.FaultAbort_HttpStatus:
		if !isHTTPStatus(uint64(kind.HttpStatus)) {
			return nil, fmt.Errorf("abort.http_status: %d is not from 200 to 599", kind.HttpStatus)
		}
		a.code = httpstatus.Code(int(kind.HttpStatus))
	case *faultpb.FaultAbort_GrpcStatus:
		if !isGRPCStatus(uint64(kind.GrpcStatus)) {
			return nil, fmt.Errorf("abort.grpc_status: %d is no status code of gRPC", kind.GrpcStatus)
		}
		a.code = codes.Code(kind.GrpcStatus)
	case *faultpb.FaultAbort_HeaderAbort_:
		a.header = true
	default:
		return nil, fmt.Errorf("abort: http_status, grpc_status or header_abort must be set")
	}
	return a, nil
}

func isHTTPStatus(n uint64) bool { return n >= 200 && n < 600 }

func isGRPCStatus(n uint64) bool { return n <= uint64(codes.Unauthenticated) }
