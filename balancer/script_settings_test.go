package balancer_test

import (
	"strings"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// set changes a setting of the Cluster.
func (s *script) set(of *scripted, setting string) {
	s.T.Helper()
	key, value, _ := strings.Cut(setting, "=")
	c := &of.cluster
	switch key {
	case "policy":
		c.LBPolicy, c.LBConfig, c.AcrossLocalities = value, "", value == xdsresource.PolicyRingHash || value == xdsresource.PolicyMaglev
	case "config":
		c.LBConfig = value
	case "across":
		c.AcrossLocalities = value == "true"
	case "sessions": // the statuses of their endpoints
		var set []xdsresource.HealthStatus
		for _, name := range strings.Split(value, ",") {
			set = append(set, statusOf(name))
		}
		c.Sessions = xdsresource.Sessions{Statuses: xdsresource.SetOf(set...), IdleTimeout: time.Minute}
	case "health": // the service that is asked for; empty: no health check
		if c.HealthCheck = nil; value != "" {
			c.HealthCheck = &xdsresource.HealthCheck{Service: value}
		}
	case "outliers": // see outliers; empty: no endpoint is ejected
		if c.Outliers = nil; value != "" {
			c.Outliers = s.outliers(value)
		}
	case "service": // name/namespace
		name, namespace, _ := strings.Cut(value, "/")
		c.Service = &xdsresource.Service{Name: name, Namespace: namespace}
	case "loads": // the number of the store that counts them, "1+" with a metric; empty: none
		if c.Load = nil; value != "" {
			c.Load = &xdsresource.LoadReporting{Loads: s.stores[value[0]-'1'], Service: "svc"}
			if strings.HasSuffix(value, "+") {
				c.Load.Metrics = &load.Metrics{load.CPU: true}
			}
		}
	case "subset": // of a priority
		c.Subsets.OfPriority = uint32(s.number(value))
	case "subset-of-locality":
		c.Subsets.OfLocality = uint32(s.number(value))
	case "limit":
		c.MaxRequests = uint32(s.number(value))
	case "security":
		c.Security = s.securities.byName[value]
	case "connect": // through proxies
		c.HTTPConnect = value == "true"
	case "max-retries":
		c.Retries = &xdsresource.RetryLimit{Fixed: uint32(s.number(value))}
	case "retry-budget": // the percentage, beside the fixed number, of the RPCs in flight or of the last minute
		c.Retries = &xdsresource.RetryLimit{Percent: float64(s.number(strings.TrimSuffix(value, "/min"))), Budget: true}
		if strings.HasSuffix(value, "/min") {
			c.Retries.Interval = time.Minute
		} else {
			c.Retries.Fixed = 1
		}
	default:
		s.T.Fatalf("unknown setting %q", key)
	}
}

// outliers returns settings of outlier detection: interval, base, max-time and jitter, which are times, and max-percent; "success", the factor of the
// deviation, and "failure", the threshold, each with hosts, volume and enforced behind it; 5xx, gateway and local, which are numbers of failures in
// a row. By default, an interval is 10 s long, and an ejection of half of the endpoints at most 30 s.
func (s *script) outliers(settings string) *xdsresource.OutlierDetection {
	o := &xdsresource.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 30 * time.Second, MaxEjectionPercent: 50,
	}
	of := map[string]any{"interval": &o.Interval, "base": &o.BaseEjectionTime, "max-time": &o.MaxEjectionTime,
		"jitter": &o.MaxEjectionTimeJitter, "max-percent": &o.MaxEjectionPercent}
	for r, name := range [xdsresource.Runs]string{"5xx", "gateway", "local"} {
		of[name], o.Consecutive[r].EnforcementPercentage = &o.Consecutive[r].Failures, 100
	}
	for _, setting := range strings.Split(settings, ",") {
		key, value, _ := strings.Cut(setting, ":")
		switch key {
		case "success":
			c := &xdsresource.SuccessRateEjection{EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 100}
			o.SuccessRate = c
			of[key], of["hosts"], of["volume"], of["enforced"] = &c.StdevFactor, &c.MinimumHosts, &c.RequestVolume, &c.EnforcementPercentage
		case "failure":
			c := &xdsresource.FailurePercentageEjection{EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 50}
			o.FailurePercentage = c
			of[key], of["hosts"], of["volume"], of["enforced"] = &c.Threshold, &c.MinimumHosts, &c.RequestVolume, &c.EnforcementPercentage
		case "local":
			o.SplitLocalOriginErrors = true
		}
		switch field := of[key].(type) {
		case *uint32:
			*field = uint32(s.number(value))
		case *time.Duration:
			var err error
			*field, err = time.ParseDuration(value)
			xdstest.NoError(s.T, err)
		default:
			s.T.Fatalf("unknown setting %q of outlier detection", key)
		}
	}
	return o
}

// statusOf returns the health status of an endpoint by its name.
func statusOf(name string) xdsresource.HealthStatus {
	for h := xdsresource.HealthUnknown; ; h++ {
		if h.String() == name {
			return h
		}
	}
}

// endpoints sets the endpoints, and the Cluster as its settings are.
func (s *script) endpoints(of *scripted, words []string) {
	c, e := of.cluster, &xdsresource.Endpoints{Name: of.name + "-eds", Drops: of.drops}
	for _, word := range words {
		place, list, _ := strings.Cut(word, "=")
		place, weight := s.weighted(place)
		zone, priority, _ := strings.Cut(place, "/")
		l := xdsresource.Locality{ID: xdsresource.LocalityID{Zone: zone}, Weight: weight}
		if parts := strings.Split(zone, ":"); len(parts) == 3 {
			l.ID = xdsresource.LocalityID{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
		}
		if priority != "" {
			l.Priority = uint32(s.number(priority))
		}
		for _, item := range strings.Split(list, ",") {
			item, health, _ := strings.Cut(item, "!")
			item, proxy, behind := strings.Cut(item, "@")
			item, hostname, _ := strings.Cut(item, "~")
			item, version, hasVersion := strings.Cut(item, "^")
			item, weight := s.weighted(item)
			var addrs []string
			for _, name := range strings.Split(item, "+") {
				addrs = append(addrs, name+":1")
			}
			one := xdsresource.Endpoint{Address: addrs[0], Additional: addrs[1:], Weight: weight, Hostname: hostname}
			if health != "" {
				one.Health = statusOf(health)
			}
			if hasVersion {
				one.Metadata = versioned(s.T, version)
			}
			if behind {
				one.Proxy = proxy + ":1"
			}
			l.Endpoints = append(l.Endpoints, one)
		}
		e.Localities = append(e.Localities, l)
	}
	of.over = nil
	of.updates++
	update := of.updates
	of.state = balancer.ClusterState{Cluster: &c, Endpoints: e, Notes: of.state.Notes, ResolveNow: func() {
		if update == of.updates { // It is that of the endpoints of now.
			of.lookUps++
		}
	}}
}

// weighted splits text*weight. The weight is 1 by default.
func (s *script) weighted(text string) (string, uint32) {
	text, weight, ok := strings.Cut(text, "*")
	if !ok {
		return text, 1
	}
	return text, uint32(s.number(weight))
}
