"""The choreography of a storm: what is checked before, who does what when, what is cleaned up after."""
