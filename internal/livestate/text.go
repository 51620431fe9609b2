package livestate

import (
	"fmt"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/xdsclient"
)

// String says how many endpoints of a cluster are connected, and what is wrong with the others.
func (e *Endpoints) String() string {
	if e.All == 0 {
		return "no endpoints"
	}
	text := fmt.Sprintf("%d of %s connected", e.Ready, faults.Count(e.All, "endpoint"))
	for _, part := range []struct {
		n    int
		what string
	}{{e.Connecting, "connecting"}, {e.Idle, "idle"}, {e.Failing, "failing"}, {e.Ejected, "ejected"}, {e.Unhealthy, "unhealthy"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return text
}

// RPCs says what became of RPCs in the last minute; it is empty for nil.
func RPCs(r *outcomes.Report) string {
	if r == nil {
		return ""
	}
	m := &r.Minute
	text := fmt.Sprintf("%s in %d s", faults.Count(int(m.Started), "RPC"), m.Seconds)
	if m.Failed > 0 {
		text += fmt.Sprintf(", %d failed (%.1f %%)", m.Failed, 100*m.Share())
	}
	if m.P50 != nil && m.P99 != nil {
		text += ", p50 " + Latency(*m.P50) + ", p99 " + Latency(*m.P99)
	}
	if r.InFlight > 0 {
		text += fmt.Sprintf(", %d in flight", r.InFlight)
	}
	if r.Retries > 0 {
		text += ", " + faults.Count(int(r.Retries), "retry")
	}
	if r.Hedges > 0 {
		text += ", " + faults.Count(int(r.Hedges), "hedge")
	}
	if e := r.Last; e != nil {
		text += fmt.Sprintf("; last error %s: %s: %s", Clock(e.Time), e.Code, e.Text)
	}
	return text
}

// Cells are the rate of RPCs, the share that failed and the 99th percentile of their latency, for a table: "-" for what is not known, all of it if
// m is nil.
func Cells(m *outcomes.Minute) (rate, failed, p99 string) {
	rate, failed, p99 = "-", "-", "-"
	if m == nil {
		return rate, failed, p99
	}
	rate = fmt.Sprintf("%.1f", m.Rate())
	if m.Ended > 0 {
		failed = Percent(m.Share())
	}
	if m.P99 != nil {
		p99 = Latency(*m.P99)
	}
	return rate, failed, p99
}

// Latency writes milliseconds.
func Latency(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.3g ms", ms)
	}
}

// Variant returns what distinguishes a resource from others of its name: the constraints that it is watched with or, of a member of a
// collection, the parameters of the variant (xRFC TP2). It is empty if there is only one.
func Variant(r *xdsclient.ResourceDump) string {
	switch {
	case r.Member && !r.Parameters.IsZero():
		return r.Parameters.String()
	case !r.Member && !r.Constraints.IsZero():
		return r.Constraints.String()
	default:
		return ""
	}
}

// Clock writes a time, nothing for the zero time.
func Clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05 UTC")
}
