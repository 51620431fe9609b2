package ads

// Progress is how far a subscription got with its server. A Subscriber embeds it.
type Progress struct {
	State State
	// repeats is how often the server was asked again before it answered. See Requests.crossed.
	repeats uint8
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
}

func (p *Progress) progress() *Progress { return p }

// Step notes an event of a subscription that is in no request.
func (p *Progress) Step(e Event) (r Effect) {
	p.State, r = next(p.State, e)
	return r
}

// Listed reports whether a request of this stream listed the subscription.
func (p *Progress) Listed() bool { return p.request > 0 }

// beginStream forgets the last stream.
func (p *Progress) beginStream() {
	p.repeats, p.ignoredDenialIn, p.request, p.before, p.Seen = 0, 0, 0, 0, 0
	p.Step(Reopened)
}
