package metrics

import (
	"time"

	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// AddSource adds the metrics of a source of documents, whose changes Seen and Published report. state is called at any
// time.
func (p *Plane) AddSource(state func() planestate.State) {
	faults := gauge(namespace+"_document_faults", "Faults in the newest documents, for which an older state of them is served, unless by --permissive.")
	leftOut := gauge(namespace+"_left_out", "Errors in the objects of a cluster for which endpoints, services or policies are left out of what is served.")
	faulty := gauge(namespace+"_documents_faulty_seconds", "For how long the newest documents have had errors, 0 while they are valid.")
	waits := gauge(namespace+"_withdrawal_waits", "1 while a change that withdraws more than a third of the services waits, otherwise 0.")
	published := gauge(namespace+"_published_timestamp_seconds", "When the last update was published, in Unix time; 0 before the first one.")
	lag := gauge(namespace+"_store_lag_seconds", "For how long there have been documents that are not served: with errors or not built yet.")
	gone := gauge(namespace+"_store_gone_seconds", "For how long the store has not answered, 0 while it does.")
	documents := gauge(namespace+"_documents", "Documents that are served.")
	p.registry.MustRegister(p.build)
	p.collect(func(set setter) {
		s := state()
		var last planestate.Published
		if s.Published != nil {
			last = *s.Published
		}
		waiting := 0.0
		if s.Waiting != "" {
			waiting = 1
		}
		set(faults, float64(s.Faults))
		set(leftOut, float64(last.LeftOut))
		set(faulty, age(s.FaultySince))
		set(waits, waiting)
		set(published, unixSeconds(last.At))
		set(gone, age(s.GoneSince))
		set(lag, age(p.unserved.Load()))
		set(documents, float64(last.Documents))
	}, documents, faults, leftOut, faulty, waits, published, lag, gone)
}

// Seen notes that the source has documents that differ from what is served.
func (p *Plane) Seen() {
	now := time.Now()
	p.unserved.CompareAndSwap(nil, &now)
}

// Published notes that all documents that were seen are served.
func (p *Plane) Published(took time.Duration) {
	p.build.Observe(took.Seconds())
	p.unserved.Store(nil)
}
