//go:build race

package controlplane

const raceDetector = true
