package step

import "time"

// The contract's versions and names.
const (
	schemaVersion = 1 // sections 3, 4, 10, 11: the only version of each document this program reads or writes

	invocationName = "invocation.json"      // section 1
	resultName     = "result.json"          // section 1
	logsName       = "logs.ndjsonl"         // section 1
	markerName     = "__lspo_complete.json" // section 1

	defaultCredentialsFile = "/lspo/creds/creds.json" // section 2
)

// Sizes, in bytes unless said otherwise.
const (
	maxEnvelope   = 64 << 20 // section 18: read at most so much of a credentials envelope
	maxInvocation = 8 << 20  // section 4
	maxMarker     = 8 << 20  // sections 9 and 10
	maxResult     = 1 << 20  // sections 9 and 11: every upload of it
	maxObject     = 1 << 30  // section 6: a larger object is refused before sending
	maxErrorBody  = 4096     // section 7: so much of a refusal's body is read
	maxStoreCode  = 64       // section 7: characters of the store's <Code>
	maxError      = 500      // section 9: characters of the marker's error
	maxStreamLine = 64 << 10 // section 9: a line of a stream is cut here
	maxLogLine    = 4096     // section 9: so much of a log line is kept by the platform

	blockSize     = 1 << 20   // section 5: inputs move in blocks of this size
	cacheInterval = 8 << 20   // section 16: page cache is given back each time so much has moved
	sendBuffer    = 256 << 10 // ours: one write to a socket

	maxAnswerHead = 1 << 20 // ours: status line and headers of one answer

	// maxPublishedMarker bounds the marker of a published folder, which no platform reads: a job may have more
	// outputs than fit into the contract's 8 MiB.
	maxPublishedMarker = 256 << 20
)

// Facts (section 11).
const (
	maxFacts       = 10_000
	maxFactValue   = 512 // characters of a value, and of a string in meta
	maxMetaKeys    = 32
	maxMetaKey     = 64 // characters
	maxParamsKeys  = 64 // names left of a params echo that was dropped
	paramsKeyWidth = 64 // ours: characters kept of each such name
)

// Progress (sections 9 and 12).
const (
	maxPhase         = 64 // characters
	maxProgressLines = 200
)

// Times.
const (
	establishTimeout = 10 * time.Second // section 15: name lookup, every address, proxy and TLS together
	readSilence      = 25 * time.Second // section 15: between two reads of an answer to a GET
	uploadSilence    = 10 * time.Second // section 15: between two writes, and until an upload's answer
	markerDeadline   = 20 * time.Second // section 10: connection and transfer of the marker together
	expiryMargin     = 5 * time.Second  // section 8: an envelope is read again so long before it expires

	silenceLook = 500 * time.Millisecond // ours: how often a silent peer is looked at
	refusalWait = 2 * time.Second        // ours: for the answer of a store that stopped reading an upload
	refusalBody = 5 * time.Second        // ours: for the body of a refusal, which only adds a word to a message

	// stopGrace is what a command gets between SIGTERM and SIGKILL. Section 14 allows 30 s until the step itself
	// is killed, and the marker may take markerDeadline of them.
	stopGrace = 8 * time.Second
	// drainWait bounds the wait for output after the command's group is gone.
	drainWait = 2 * time.Second
	// sweepWait bounds the killing of what a command left behind, sweepPause spaces its looks.
	sweepWait  = 3 * time.Second
	sweepPause = 5 * time.Millisecond
)

// The copy work (section 17) and what a command's outputs share with it.
const (
	outputDir  = "outputs"
	outputPort = "output"
	reportPort = "report"
	inputPort  = "input" // ours: the port of an envelope entry that names none
)

// userAgent names the program in every request (section 18).
const userAgent = "openai4s-step/1"
