package dnsconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/dynxds/dynxds/internal/faults"
)

// log logs a result of new records, or with another outcome than the last one.
func (j *joint) log(r *Result) {
	if r != j.last && r.Outcome == j.logged {
		return
	}
	j.logged = r.Outcome
	if len(r.Void) > 0 {
		var reasons []string
		for _, v := range r.Void {
			reasons = append(reasons, fmt.Sprintf("[%d]: %v", v.Index, v.Reason))
		}
		logger.Warningf("%s: %d choices of the service config are void: %s", r.Name, len(r.Void), faults.Few(reasons, maxListed, "; "))
	}
	switch r.Outcome {
	case OutcomeChosen:
		logger.Infof("%s: choice [%d] is the service config (draw %d, hostname %q)", r.Name, r.Choice.Index, r.Client.Draw, r.Client.Hostname)
		if hedges(r.Choice.ServiceConfig) {
			logger.Warningf("%s: choice [%d] has a hedgingPolicy, which gRPC-Go ignores: RPCs to %q are sent once", r.Name, r.Choice.Index, j.target.String())
		}
	case OutcomeNoMatch:
		logger.Infof("%s: no choice matches (language %q, draw %d, hostname %q)%s", r.Name, r.Client.Language, r.Client.Draw, r.Client.Hostname, j.kept())
	case OutcomeNoRecord:
		if len(j.records) > 0 {
			logger.Warningf("%s: no service config, as none of its TXT records (%d) begins with %s=%s; one is %s",
				r.Name, len(j.records), attribute, j.kept(), strconv.Quote(faults.Shorten(j.records[0], 100)))
			break
		}
		logger.Infof("%s: no service config%s", r.Name, j.kept())
	case OutcomeFaulty:
		logger.Warningf("%s: the service config cannot be used: %v%s", r.Name, r.Err, j.kept())
	case OutcomeFailed:
		logger.Warningf("%s: the look-up of the service config failed and will be retried: %v%s", r.Name, r.Err, j.kept())
	}
}

// hedges reports whether a service config has a hedging policy (gRFC A6).
func hedges(serviceConfig string) bool {
	var config struct {
		MethodConfig []struct{ HedgingPolicy any }
	}
	return json.Unmarshal([]byte(serviceConfig), &config) == nil &&
		slices.ContainsFunc(config.MethodConfig, func(m struct{ HedgingPolicy any }) bool { return m.HedgingPolicy != nil })
}

// kept describes what the channel uses without a new service config.
func (j *joint) kept() string {
	if j.config == nil {
		return "; the channel's default applies"
	}
	return "; the channel keeps the one it has"
}
