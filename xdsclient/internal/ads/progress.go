package ads

// State says how far a subscription got with its server.
type State uint8

const (
	// Unsent: no request of this stream names the resource.
	Unsent State = iota
	// Sending: a request that names the resource is being written.
	Sending
	// Requested: a request is out, and the resource timer runs.
	Requested
	// Received: the server has sent the resource. A response with the full state that omits
	// it therefore deletes it.
	Received
	// Reask: the server has sent the resource, and has to be asked again whether it is
	// still the preferred variant (xRFC TP2), or still there.
	Reask
	// Missing: the server deleted the resource, does not have it, or did not send it in time.
	// It may still come.
	Missing
	// Failed: the server sent an error in place of the resource. It does so once, so a
	// response without either changes nothing (xRFC TP3, "Protocol Behavior").
	Failed
	// Dropped: the subscription has ended.
	Dropped
)

// Progress is how far a subscription got with its server. A Subscriber embeds it.
type Progress struct {
	State State
	// mustReask says that the server has to be asked again before it has answered, and repeats how often it
	// was. asked is the number of the last response before it was asked. See Requests.crossed.
	mustReask bool
	repeats   uint8
	asked     uint64
	// older is how many responses of the stream for the type the server may have sent before it
	// read the request for the subscription. See Requests.SaysAbsent.
	older uint64
	// Seen is the number of the last response that has something to say of the resource.
	Seen uint64
	// request is the number of the request since which the requests of the stream list the subscription,
	// or 0, and ignoredDenialIn that of the response whose denial was ignored, or 0. See
	// Requests.IgnoresDenial.
	request, ignoredDenialIn uint64
	// read says, of a resource that the server has sent, that it had read the request for the subscription before an
	// earlier stream ended.
	read bool
	// listed is how many responses of the stream came for the type before that request.
	listed uint64
	// before is the request since which lists had the subscription before it was left out to be asked for again, or 0.
	before uint64
	// keptDespiteDenial says that the server has omitted or denied the resource since it sent it, in a
	// response that may have crossed a request. See Requests.KeepsOmitted and IgnoresDenial.
	keptDespiteDenial bool
}

func (p *Progress) progress() *Progress { return p }

// Pending reports whether the server was asked for the subscription and has not answered.
func (p *Progress) Pending() bool { return p.State == Sending || p.State == Requested }

// Listed reports whether a request of this stream listed the subscription.
func (p *Progress) Listed() bool { return p.request > 0 }

// KeptDespiteDenial reports whether the resource was kept though the server omitted or denied it, and the
// server has not confirmed either since.
func (p *Progress) KeptDespiteDenial() bool {
	return p.keptDespiteDenial && (p.State == Unsent || p.State == Reask || p.Pending())
}

// isToBeAsked reports whether the server has to be asked again.
func (p *Progress) isToBeAsked() bool { return p.State == Reask || p.mustReask && p.Pending() }

// beginStream forgets the last stream.
func (p *Progress) beginStream() {
	p.mustReask, p.ignoredDenialIn, p.request, p.before, p.Seen = false, 0, 0, 0, 0
	if p.KeptDespiteDenial() { // the first full state of the new stream settles it
		p.State = Received
	} else if p.Pending() || p.State == Reask {
		p.State = Unsent
	}
	p.keptDespiteDenial = false
}

// noteSending notes that a request asks for the subscription, after the response of the given
// number.
func (p *Progress) noteSending(lastResponse uint64) {
	if p.mustReask {
		p.mustReask = false
	} else {
		p.repeats = 0
	}
	p.State, p.asked = Sending, lastResponse
}
