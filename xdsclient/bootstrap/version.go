package bootstrap

// UserAgentName and UserAgentVersion are what a node says its software is.
const (
	UserAgentName    = "dynxds"
	UserAgentVersion = "0.1.0"
)
