package xdsresource

import (
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

// OutlierDetection says when endpoints that fail RPCs are ejected (gRFC A50, Envoy). At least
// one of the algorithms is set.
type OutlierDetection struct {
	// Interval is the time between two evaluations of the endpoints, at least bounds.MinOutlierInterval.
	Interval time.Duration
	// BaseEjectionTime times the number of ejections is how long an endpoint is
	// ejected, but not longer than MaxEjectionTime.
	BaseEjectionTime, MaxEjectionTime time.Duration
	// MaxEjectionTimeJitter is the most that is added to the time of an ejection, at random.
	MaxEjectionTimeJitter time.Duration
	// MaxEjectionPercent is the share of ejected endpoints, in percent, at which no
	// further one is ejected.
	MaxEjectionPercent uint32
	// SuccessRate and FailurePercentage are nil if they are not in use.
	SuccessRate       *SuccessRateEjection
	FailurePercentage *FailurePercentageEjection
	// The ejections for consecutive failures are Envoy's; gRFC A50 does not have them. They are
	// nil if they are not in use. ConsecutiveLocalOriginFailure needs SplitLocalOriginErrors.
	Consecutive5xx, ConsecutiveGatewayFailure, ConsecutiveLocalOriginFailure *ConsecutiveEjection
	// SplitLocalOriginErrors says that RPCs without an answer count for
	// ConsecutiveLocalOriginFailure, not for the other two.
	SplitLocalOriginErrors bool
}

// ConsecutiveEjection ejects an endpoint at once when it has failed that many RPCs in a row.
type ConsecutiveEjection struct {
	// Failures is at least 1.
	Failures uint32
	// EnforcementPercentage is as in SuccessRateEjection.
	EnforcementPercentage uint32
}

// SuccessRateEjection ejects endpoints whose share of successful RPCs is far
// below the mean.
type SuccessRateEjection struct {
	// StdevFactor / 1000 is how many standard deviations below the mean the success
	// rate of an endpoint must be for it to be ejected.
	StdevFactor uint32
	// EnforcementPercentage is the chance of an ejection, in percent.
	EnforcementPercentage uint32
	// MinimumHosts is how many endpoints need RequestVolume RPCs in an interval
	// for any to be ejected.
	MinimumHosts, RequestVolume uint32
}

// FailurePercentageEjection ejects endpoints that fail more than a share of
// their RPCs.
type FailurePercentageEjection struct {
	// Threshold is the share, in percent.
	Threshold uint32
	// The others are as in SuccessRateEjection.
	EnforcementPercentage, MinimumHosts, RequestVolume uint32
}

// outlierDetection decodes outlier_detection (gRFC A50, "xDS Integration"). It
// returns nil if that is not set or has no algorithm in use that gRPC knows.
func (d clusterDecoder) outlierDetection(at *faults.Path, pb *clusterpb.OutlierDetection) *OutlierDetection {
	if pb == nil {
		return nil
	}
	o := &OutlierDetection{
		Interval:           d.durationOr(at.Field("interval"), pb.GetInterval(), 10*time.Second),
		BaseEjectionTime:   d.durationOr(at.Field("base_ejection_time"), pb.GetBaseEjectionTime(), 30*time.Second),
		MaxEjectionPercent: d.percentOr(at.Field("max_ejection_percent"), pb.GetMaxEjectionPercent(), 10),
	}
	o.MaxEjectionTime = d.durationOr(at.Field("max_ejection_time"), pb.GetMaxEjectionTime(), max(o.BaseEjectionTime, 300*time.Second))
	o.MaxEjectionTimeJitter = d.durationOr(at.Field("max_ejection_time_jitter"), pb.GetMaxEjectionTimeJitter(), 0)
	successRate := SuccessRateEjection{
		StdevFactor:           numberOr(pb.GetSuccessRateStdevFactor(), 1900),
		EnforcementPercentage: d.percentOr(at.Field("enforcing_success_rate"), pb.GetEnforcingSuccessRate(), 100),
		MinimumHosts:          numberOr(pb.GetSuccessRateMinimumHosts(), 5),
		RequestVolume:         numberOr(pb.GetSuccessRateRequestVolume(), 100),
	}
	failures := FailurePercentageEjection{
		Threshold:             d.percentOr(at.Field("failure_percentage_threshold"), pb.GetFailurePercentageThreshold(), 85),
		EnforcementPercentage: d.percentOr(at.Field("enforcing_failure_percentage"), pb.GetEnforcingFailurePercentage(), 0),
		MinimumHosts:          numberOr(pb.GetFailurePercentageMinimumHosts(), 5),
		RequestVolume:         numberOr(pb.GetFailurePercentageRequestVolume(), 50),
	}
	if successRate.EnforcementPercentage > 0 {
		o.SuccessRate = &successRate
	}
	if failures.EnforcementPercentage > 0 {
		o.FailurePercentage = &failures
	}
	d.consecutive(at, pb, o)
	if o.SuccessRate == nil && o.FailurePercentage == nil && o.Consecutive5xx == nil &&
		o.ConsecutiveGatewayFailure == nil && o.ConsecutiveLocalOriginFailure == nil {
		return nil
	}
	if o.Interval < bounds.MinOutlierInterval {
		d.warn(at.Field("interval"), "is %v, so endpoints are evaluated every %v, the least that this client permits", o.Interval, bounds.MinOutlierInterval)
		o.Interval = bounds.MinOutlierInterval
	}
	return o
}

// consecutive decodes the ejections for consecutive failures. Unlike in Envoy, one is in use only
// if one of its two fields is set: gRPC clients have never ejected by them, and a Cluster that does not
// mention them does not ask for it. A field that is missing then has Envoy's default.
func (d clusterDecoder) consecutive(at *faults.Path, pb *clusterpb.OutlierDetection, o *OutlierDetection) {
	decode := func(failures *wrapperspb.UInt32Value, enforcing string, percentage *wrapperspb.UInt32Value, otherwise uint32) *ConsecutiveEjection {
		c := ConsecutiveEjection{Failures: numberOr(failures, 5), EnforcementPercentage: d.percentOr(at.Field(enforcing), percentage, otherwise)}
		if failures == nil && percentage == nil || c.Failures == 0 || c.EnforcementPercentage == 0 {
			return nil
		}
		return &c
	}
	o.Consecutive5xx = decode(pb.GetConsecutive_5Xx(), "enforcing_consecutive_5xx", pb.GetEnforcingConsecutive_5Xx(), 100)
	o.ConsecutiveGatewayFailure = decode(pb.GetConsecutiveGatewayFailure(),
		"enforcing_consecutive_gateway_failure", pb.GetEnforcingConsecutiveGatewayFailure(), 0)
	local := decode(pb.GetConsecutiveLocalOriginFailure(),
		"enforcing_consecutive_local_origin_failure", pb.GetEnforcingConsecutiveLocalOriginFailure(), 100)
	if o.SplitLocalOriginErrors = pb.GetSplitExternalLocalOriginErrors(); o.SplitLocalOriginErrors {
		o.ConsecutiveLocalOriginFailure = local
	}
}
