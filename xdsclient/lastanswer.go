package xdsclient

// lastAnswer is what a server last said of a resource. The zero value: nothing.
type lastAnswer struct {
	// payload is the last valid version, or nil. taken is when the server last sent
	// it, and what it called its version; it may change while the bytes do not.
	payload *payload
	taken   stamp
	// lastError is the error that the server has sent since, or nil.
	lastError *lastError
}

// lastError is the last answer of a server for a resource if that is an error.
type lastError struct {
	state CacheState
	fault *Error
	// drop says that the version in use is withdrawn.
	drop bool
}

// state is the one that gRFC A88 names. A version from disk is no answer.
func (a *lastAnswer) state() CacheState {
	switch {
	case a.lastError != nil:
		return a.lastError.state
	case a.payload == nil || a.taken.stored:
		return StateRequested
	default:
		return StateACKed
	}
}

// fault returns the error, or nil.
func (a *lastAnswer) fault() *Error {
	if a.lastError == nil {
		return nil
	}
	return a.lastError.fault
}

// note notes an error.
func (a *lastAnswer) note(e *lastError) {
	if a.lastError = e; e.drop {
		a.payload, a.taken = nil, stamp{}
	}
}

// about returns the same answer for another resource.
func (a *lastAnswer) about(r *resource) lastAnswer {
	other := *a
	if e := a.lastError; e != nil {
		other.lastError = &lastError{e.state, e.fault.about(r), e.drop}
	}
	return other
}

// final reports whether the server does not have the resource, or not for this client.
func (a *lastAnswer) final() bool { return a.lastError != nil && a.lastError.fault.final() }
