package bootstrap

// userAgentName and UserAgentVersion are what a node says its software is.
const (
	userAgentName    = "dynxds"
	UserAgentVersion = "0.1.0"
)
